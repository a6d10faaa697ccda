//! virtio-blk/scsi multiqueue is not limited to 1.

use nearmetal_domain::PeripheralFacts;
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, machine_version, of_disk};

pub(crate) const RULE: Rule = Rule {
    id: "disk-queues-auto",
    layer: Layer::DomainDisk,
    title: "virtio-blk/scsi multiqueue is not limited to 1",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &["domain <disk><driver queues>, <controller type='scsi'><driver queues>"],
    good: "num-queues >= min(vCPU, 8) (8 is chosen here); machine types of QEMU 5.2 and later default to one queue per vCPU",
    applies: "guests with more than 1 vCPU",
    not_applies: "density guests with hundreds of vCPU total (MSI-X and memory cost), old machine types default 1",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "q-help", "pve-qm", "kv-disk"],
    fix: Fix {
        live: None,
        persistent: "<driver queues='8'/>",
        needs: &[Need::VmRestart],
        undo: "more vectors/memory; undo queues='1'",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let vcpus = subject.facts.vcpus.current;
    let enough = vcpus.min(subject.context.settings.queues_enough);
    if vcpus < 2 {
        return Outcome::NotApplicable;
    }
    // Since machine types of QEMU 5.2 a device without a number gets one queue for each vCPU.
    let old = subject
        .facts
        .boot
        .machine
        .as_deref()
        .and_then(machine_version)
        .is_some_and(|(_, major, minor)| (major, minor) < (5, 2));
    let object = |what: String, found: String, driver: Option<String>| {
        let cure = driver.map(|driver| Cure::attribute(driver, "queues", enough.to_string()));
        Object::new(what, found, format!("{enough} queues")).cured_by_all(cure)
    };
    let judge = |what: String, queues: Option<u32>, driver: Option<String>| match queues {
        Some(queues) if queues < enough => Some(object(what, format!("{queues} queues"), driver)),
        None if old => Some(object(what, "1 queue, the default of its machine type".to_owned(), driver)),
        _ => None,
    };
    let disks = subject.disks().filter(|disk| disk.is_virtio_blk());
    let disks =
        disks.filter_map(|disk| judge(format!("disk {}", disk.target), disk.driver.queues, of_disk(disk, "driver")));
    let uses_scsi = subject.disks().any(|disk| disk.bus.as_deref() == Some("scsi"));
    let virtio = |device: &&PeripheralFacts| {
        uses_scsi && device.model.as_deref().is_some_and(|model| model.starts_with("virtio"))
    };
    let controllers = subject.scsi_controllers().filter(virtio);
    // Several controllers cannot be told apart by one condition.
    let place = (subject.scsi_controllers().count() == 1).then(|| "devices/controller[@type='scsi']/driver".to_owned());
    let controllers = controllers.filter_map(|device| {
        judge(format!("SCSI controller {}", device.index.unwrap_or(0)), device.queues, place.clone())
    });
    Outcome::of(disks.chain(controllers).collect())
}
