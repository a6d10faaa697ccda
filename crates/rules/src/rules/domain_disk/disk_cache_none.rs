//! Cache mode is explicit and direct.

use nearmetal_domain::DiskFacts;
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, of_disk};

pub(crate) const RULE: Rule = Rule {
    id: "disk-cache-none",
    layer: Layer::DomainDisk,
    title: "Cache mode is explicit and direct",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <disk><driver cache>"],
    good: "none (direct=true, writeback=true) or directsync by need; writeback tolerated on file stores without migration; writethrough = slow; unsafe only on throw-away guests",
    applies: "throughput/latency classes; all that live-migrate",
    not_applies: "read-mostly density guests sharing a base image may gain from the host page cache",
    effect: "unquantified; Red Hat: none is predictable and safe to migrate, writeback faster than writethrough but loses data on host failure",
    evidence: Evidence::B,
    sources: &["rh-rhel10cache", "talk-kvm-tuning", "paper-infn", "rh-rhel7io"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <driver cache='none'/>",
        needs: &[Need::VmRestart],
        undo: "without the host cache, re-reads hit the device; undo writeback",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let direct = is_dedicated(subject);
    let object = |disk: &DiskFacts| {
        let cache = disk.driver.cache.as_deref();
        // Without an element the default is writeback; the host's page cache holds neither NVMe functions
        // and vhost-user disks nor what comes over the network.
        let cached = !matches!(disk.kind.as_str(), "nvme" | "vhostuser" | "vhostvdpa" | "network");
        let found = match cache {
            Some("unsafe") => "unsafe: flushes are ignored",
            Some("writethrough") => "writethrough: each write is flushed",
            Some("writeback") if direct && cached => "writeback: data is in memory twice",
            None | Some("default") if direct && cached => "not set, so QEMU uses writeback",
            _ => return None,
        };
        let what = format!("disk {} cache", disk.target);
        if subject.refuses_direct(disk) {
            return Some(Object::new(what, found, "none, on a file system that takes O_DIRECT"));
        }
        let driver = of_disk(disk, "driver");
        let none = driver.clone().map(|driver| Cure::attribute(driver, "cache", "none"));
        let native = driver.filter(|_| is_worth_native(subject, disk));
        let native = native.map(|driver| Cure::attribute(driver, "io", "native"));
        Some(Object::new(what, found, "none").cured_by_all(none).cured_by_all(native))
    };
    Outcome::of(subject.disks().filter_map(object).collect())
}

fn is_dedicated(subject: &Subject<'_>) -> bool {
    matches!(subject.class, WorkloadClass::Throughput | WorkloadClass::Latency)
}

/// Whether a disk is a block device that is worth an engine that does not block, once it is past the host's cache.
pub(crate) fn is_worth_native(subject: &Subject<'_>, disk: &DiskFacts) -> bool {
    is_dedicated(subject) && disk.kind == "block" && matches!(disk.driver.io.as_deref(), None | Some("threads"))
}
