//! virtio-scsi disks with iothreads have their own controllers.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "disk-scsi-single-controller",
    layer: Layer::DomainDisk,
    title: "virtio-scsi disks with iothreads have their own controllers",
    severity: Severity::Note,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <controller type='scsi'><driver iothread>, <disk bus='scsi'>"],
    good: "busy scsi disks: one controller (and iothread) each (Proxmox 'virtio-scsi-single')",
    applies: "virtio-scsi guests with several busy disks on QEMU without scsi vq mapping",
    not_applies: "few or idle disks",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["pve-qm", "ibm-iot"],
    fix: Fix {
        live: None,
        persistent: "virsh edit: add controllers, set <address controller>",
        needs: &[Need::VmRestart],
        undo: "PCI slots; undo one controller",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let virtio = subject.scsi_controllers().filter(|device| device.model.as_deref() == Some("virtio-scsi"));
    let controllers: Vec<_> = virtio.collect();
    let disks = subject.disks().filter(|disk| disk.bus.as_deref() == Some("scsi")).count();
    if controllers.is_empty() || disks == 0 {
        return Outcome::NotApplicable;
    }
    let threaded = controllers.iter().any(|controller| controller.iothread.is_some());
    Outcome::one((threaded && disks > controllers.len()).then(|| {
        let found = format!("{disks} disks on {} virtio-scsi controllers", controllers.len());
        Object::new("SCSI controllers", found, "one for each busy disk: a controller has one iothread")
    }))
}
