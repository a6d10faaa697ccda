//! Disk throttles are intended.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "disk-iotune-known",
    layer: Layer::DomainDisk,
    title: "Disk throttles are intended",
    severity: Severity::Decide,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <disk><iotune>"],
    good: "all 0 or documented; if set, burst (iops_max) allowed",
    applies: "performance guests",
    not_applies: "sold tiers",
    effect: "hard cap by definition",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: Some("virsh blkdeviotune DOM vda --total-iops-sec 0 --live"),
        persistent: "--config",
        needs: &[Need::Live],
        undo: "neighbour effect; undo old value",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let objects = subject.disks().flat_map(|disk| {
        let of = move |(name, value): &(String, u64)| {
            Object::new(format!("disk {} {name}", disk.target), value.to_string(), "no limit, or an intended one")
        };
        disk.limits.iter().map(of)
    });
    Outcome::of(objects.collect())
}
