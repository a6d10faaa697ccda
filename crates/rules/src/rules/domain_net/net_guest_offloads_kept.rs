//! virtio offloads are not disabled in the domain.

use nearmetal_domain::InterfaceFacts;
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, interface_name, of_interface};

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
        let off: Vec<&String> =
            interface.offloads_off.iter().filter(|name| name.as_str() != "host/mrg_rxbuf").collect();
        let found = off.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        let cures = off.iter().filter_map(|offload| {
            let (side, name) = offload.split_once('/')?;
            Some(Cure::no_attribute(of_interface(interface, &format!("driver/{side}"))?, name))
        });
        (!off.is_empty())
            .then(|| Object::new(interface_name(interface), format!("off: {found}"), "all on").cured_by_all(cures))
    };
    Outcome::of(subject.facts.interfaces.iter().filter_map(object).collect())
}
