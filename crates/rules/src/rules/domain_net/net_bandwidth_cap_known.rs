//! Interface shaping is intended.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "net-bandwidth-cap-known",
    layer: Layer::DomainNet,
    title: "Interface shaping is intended",
    severity: Severity::Decide,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <interface><bandwidth>"],
    good: "absent or documented",
    applies: "performance guests",
    not_applies: "sold tiers",
    effect: "hard cap by definition",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: Some("virsh domiftune DOM vnetN --inbound 0 --outbound 0 --live"),
        persistent: "--config",
        needs: &[Need::Live],
        undo: "undo old values",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let objects = subject.facts.interfaces.iter().flat_map(|interface| {
        let of = move |(direction, rate): &(String, u64)| {
            let what = format!("{} {direction}", interface_name(interface));
            Object::new(what, format!("{rate} KiB/s on average"), "no limit, or an intended one")
        };
        interface.bandwidth.iter().map(of)
    });
    Outcome::of(objects.collect())
}
