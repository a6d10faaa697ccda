//! A disk without a write cache keeps what it called written.

use nearmetal_domain::DiskFacts;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::rules::host_kernel::version_floor_for_features::{Version, version};
use crate::subject::{Subject, of_disk};

pub(crate) const RULE: Rule = Rule {
    id: "disk-write-through-flushed",
    layer: Layer::DomainDisk,
    title: "A disk without a write cache keeps what it called written",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["domain <disk><driver cache io type>", "version of QEMU, from libvirt"],
    good: "with cache=writethrough or directsync on a raw image: io=io_uring, or io=native with directsync; or cache=none, where the guest flushes by itself",
    applies: "raw disks with cache=writethrough or directsync and io=threads (the default), QEMU 10.0.3 and later",
    not_applies: "qcow2: QEMU flushes below it after each write; QEMU before 10.0.3",
    effect: "a write is reported done before it is flushed: QEMU flushes the writes before it (commit d402da1360c2 asks for a flush while the write is not counted yet). Seen with QEMU 10.0.13: 1 MiB written and synced by the guest was gone after a power loss; io_uring kept it",
    evidence: Evidence::A,
    sources: &["q-fua", "own"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <driver io='io_uring'/>",
        needs: &[Need::VmRestart],
        undo: "io='threads'",
    },
    check: Check::Domain(check),
};

/// The first stable release with the fault; no release without it is known since.
const SINCE: Version = (10, 0, 3);

fn check(subject: &Subject<'_>) -> Outcome {
    let raw = |disk: &&DiskFacts| {
        matches!(disk.driver.format.as_deref(), None | Some("raw")) && matches!(disk.kind.as_str(), "block" | "file")
    };
    let raw: Vec<&DiskFacts> = subject.disks().filter(raw).collect();
    if raw.is_empty() {
        return Outcome::NotApplicable;
    }
    let exposed = |disk: &&DiskFacts| {
        matches!(disk.driver.cache.as_deref(), Some("writethrough" | "directsync"))
            && matches!(disk.driver.io.as_deref(), None | Some("threads"))
    };
    let exposed: Vec<&DiskFacts> = raw.into_iter().filter(exposed).collect();
    if exposed.is_empty() {
        return Outcome::of(Vec::new());
    }
    let Some(host) = subject.context.host else { return Outcome::no_host() };
    let Some((text, qemu)) = host.system.qemu_version.as_deref().and_then(|text| Some((text, version(text)?))) else {
        return Outcome::unknown("the version of QEMU (libvirt tells it, on the machine itself)");
    };
    if qemu < SINCE {
        return Outcome::of(Vec::new());
    }
    let uring_off = host.system.io_uring_disabled == Some(2);
    let object = |disk: &DiskFacts| {
        let cache = disk.driver.cache.as_deref().unwrap_or_default();
        let engine = match (uring_off, cache) {
            (false, _) => Some("io_uring"),
            (true, "directsync") => Some("native"),
            (true, _) => None,
        };
        let found = format!("cache={cache} with io=threads: QEMU {text} calls a write done before it is flushed");
        let object = Object::new(
            format!("disk {} cache", disk.target),
            found,
            engine.map_or_else(|| "cache='none'".to_owned(), |engine| format!("io='{engine}', or cache='none'")),
        );
        let (name, value) = engine.map_or(("cache", "none"), |engine| ("io", engine));
        object.cured_by_all(of_disk(disk, "driver").map(|driver| Cure::attribute(driver, name, value)))
    };
    Outcome::of(exposed.into_iter().map(object).collect())
}
