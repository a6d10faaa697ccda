//! virtio offloads are not disabled in the domain.

use nearmetal_domain::InterfaceFacts;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-guest-offloads-kept",
    layer: Layer::DomainNet,
    title: "virtio offloads are not disabled in the domain",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &["domain <driver><host tso4 tso6 ecn ufo csum gso>, <guest ...>; guest ethtool -k"],
    good: "all on/absent",
    applies: "all",
    not_applies: "guests running as routers/bridges with broken offload; latency test",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: Some("ethtool -K eth0 tso on gso on gro on (guest)"),
        persistent: "remove the attributes",
        needs: &[Need::VmRestart],
        undo: "rare bugs; undo off",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let object = |interface: &InterfaceFacts| {
        // Merged receive buffers are no offload, and net-mrgrxbuf-dpdk's matter.
        let off = interface.offloads_off.iter().map(String::as_str).filter(|name| *name != "host/mrg_rxbuf");
        let off: Vec<&str> = off.collect();
        (!off.is_empty()).then(|| Object::new(interface_name(interface), format!("off: {}", off.join(", ")), "all on"))
    };
    Outcome::of(subject.facts.interfaces.iter().filter_map(object).collect())
}
