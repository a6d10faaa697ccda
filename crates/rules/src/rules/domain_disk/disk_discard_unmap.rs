//! Discard passes through to thin/SSD storage.

use nearmetal_domain::DiskFacts;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "disk-discard-unmap",
    layer: Layer::DomainDisk,
    title: "Discard passes through to thin/SSD storage",
    severity: Severity::Note,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &["domain <driver discard='unmap'>"],
    good: "unmap on thin pools, qcow2, SSD; ignore on thick preallocated disks where steady latency or guaranteed space matters",
    applies: "thin storage",
    not_applies: "preallocated/thick (KubeVirt turns it off there)",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "kv-disk", "pve-qm"],
    fix: Fix {
        live: None,
        persistent: "<driver discard='unmap'/>",
        needs: &[Need::VmRestart],
        undo: "loses preallocation over time; undo ignore",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let thin = |disk: &&DiskFacts| {
        disk.driver.format.as_deref() == Some("qcow2") && disk.driver.discard.as_deref() != Some("unmap")
    };
    let object = |disk: &DiskFacts| {
        let found = disk.driver.discard.as_deref().unwrap_or("ignore");
        Object::new(format!("disk {} discard", disk.target), found, "unmap, unless the disk is preallocated on purpose")
    };
    Outcome::of(subject.disks().filter(thin).map(object).collect())
}
