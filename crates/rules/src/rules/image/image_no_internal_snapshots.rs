//! The qcow2 image of a performance disk has no internal snapshots.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, some_of};
use std::collections::BTreeSet;

pub(crate) const RULE: Rule = Rule {
    id: "image-no-internal-snapshots",
    layer: Layer::Image,
    title: "The qcow2 image of a performance disk has no internal snapshots",
    severity: Severity::Decide,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Windows, WorkloadClass::Passthrough],
    reads: &["qemu-img info --output=json -U --backing-chain IMAGE: snapshots"],
    good: "none",
    applies: "performance disks",
    not_applies: "labs",
    effect: "unquantified (the first write after each snapshot copies clusters and updates reference counts)",
    evidence: Evidence::C,
    sources: &["own"],
    fix: Fix {
        live: Some("virsh snapshot-delete"),
        persistent: "external snapshots",
        needs: &[Need::Live, Need::VmOffline],
        undo: "deleting loses that state; backup first",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    subject.judge_images(
        |_| true,
        |disk, chain| {
            let names: BTreeSet<&str> = chain.top.snapshots.iter().map(String::as_str).collect();
            let object = (!names.is_empty())
                .then(|| Object::new(format!("disk {}", disk.target), format!("holds {}", some_of(&names)), "none"));
            (chain.top.format == "qcow2").then(|| Outcome::one(object))
        },
    )
}
