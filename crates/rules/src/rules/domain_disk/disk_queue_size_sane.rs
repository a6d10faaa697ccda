//! virtio-blk queue-size is not changed without a measurement.

use nearmetal_domain::{DefinitionEdit, DiskFacts};
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "disk-queue-size-sane",
    layer: Layer::DomainDisk,
    title: "virtio-blk queue-size is not changed without a measurement",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["domain <disk><driver queue_size>"],
    good: "256 (current default) or 1024 only after measuring sequential load",
    applies: "throughput",
    not_applies: "random latency loads (bigger may drop performance)",
    effect: "libvirt message: larger queue-size can lower random performance; unquantified",
    evidence: Evidence::B,
    sources: &["rh-queue", "q-help"],
    fix: Fix { live: None, persistent: "<driver queue_size='256'/>", needs: &[Need::VmRestart], undo: "undo remove" },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let object = |disk: &DiskFacts| {
        let size = disk.driver.queue_size.filter(|_| disk.is_virtio_blk())?;
        let most = if subject.class == WorkloadClass::Latency { 256 } else { 1024 };
        if (256..=most).contains(&size) {
            return None;
        }
        let at = format!("devices/disk[target/@dev='{}']/driver", disk.target);
        let cure = Cure::Definition(DefinitionEdit::RemoveAttribute { at, name: "queue_size".to_owned() });
        let wanted = format!("256, QEMU's default, or up to {most} where a measurement says so");
        Some(Object::new(format!("disk {} queue_size", disk.target), size.to_string(), wanted).cured_by(cure))
    };
    Outcome::of(subject.disks().filter_map(object).collect())
}
