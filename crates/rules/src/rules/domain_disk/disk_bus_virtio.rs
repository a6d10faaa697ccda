//! Disks use virtio-blk or virtio-scsi.

use nearmetal_domain::{DiskFacts, PeripheralFacts};

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "disk-bus-virtio",
    layer: Layer::DomainDisk,
    title: "Disks use virtio-blk or virtio-scsi",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["domain <disk device='disk'><target bus>", "<controller type='scsi' model>"],
    good: "bus virtio (few disks, highest speed) or scsi on virtio-scsi (many disks, TRIM on old guests, SCSI features); not ide, sata, lsilogic",
    applies: "every guest with drivers",
    not_applies: "installation media; guests without drivers (install them first)",
    effect: "Proxmox: virtio about 2x IDE sequential write; QEMU 2022 data: virtio-blk 57.5k of host's 95.8k IOPS at 4k QD128",
    evidence: Evidence::A,
    sources: &["pve-qm", "vhostblk", "lv-dom", "talk-kvm-tuning", "paper-infn"],
    fix: Fix {
        live: None,
        persistent: "virsh edit after driver is in the guest initramfs",
        needs: &[Need::VmRestart],
        undo: "unbootable guest if driver missing; undo old bus",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let poor =
        |controller: &PeripheralFacts| controller.model.as_deref().is_some_and(|model| !model.starts_with("virtio"));
    let poor_scsi = subject.scsi_controllers().any(poor);
    let slow = |disk: &&DiskFacts| match disk.bus.as_deref() {
        Some("ide" | "sata" | "usb" | "fdc" | "sd") => true,
        Some("scsi") => poor_scsi,
        _ => false,
    };
    let object = |disk: &DiskFacts| {
        let bus = disk.bus.as_deref().unwrap_or("unknown");
        Object::new(format!("disk {}", disk.target), format!("bus {bus}"), "virtio, or scsi on virtio-scsi")
    };
    Outcome::of(subject.disks().filter(slow).map(object).collect())
}
