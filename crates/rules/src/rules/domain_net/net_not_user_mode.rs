//! Performance NICs do not use user-mode networking.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-not-user-mode",
    layer: Layer::DomainNet,
    title: "Performance NICs do not use user-mode networking",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <interface type='user'> (slirp or passt backend)"],
    good: "bridge/direct/ethernet/hostdev/vdpa/vhostuser for performance; NAT acceptable for management",
    applies: "network-heavy guests",
    not_applies: "unprivileged (session) guests",
    effect: "unquantified; libvirt describes it as an unprivileged userspace proxy",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: None,
        persistent: "change interface type (new bridge)",
        needs: &[Need::VmRestart],
        undo: "address change; undo user",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let user = subject.facts.interfaces.iter().filter(|interface| interface.kind == "user");
    Outcome::of(
        user.map(|interface| Object::new(interface_name(interface), "user-mode network", "a bridge, macvtap or a VF"))
            .collect(),
    )
}
