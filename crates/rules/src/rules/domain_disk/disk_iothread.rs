//! Busy disks have an IOThread.

use nearmetal_domain::{DefinitionEdit, DiskFacts, PeripheralFacts};
use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, of_disk};

pub(crate) const RULE: Rule = Rule {
    id: "disk-iothread",
    layer: Layer::DomainDisk,
    title: "Busy disks have an IOThread",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &["domain <iothreads>, <iothreadids>", "<disk><driver iothread>", "<controller scsi><driver iothread>"],
    good: "every performance disk on an iothread; no more iothreads than disks or host CPUs spare",
    applies: "throughput/latency; guests > 4 vCPU with real I/O",
    not_applies: "density guests with idle disks",
    effect: "LNVPS (self-reported in a pull request): about 250 MiB/s without an iothread, 8+ GB/s with a pool; Red Hat OpenShift: up to 2x+ with several iothreads in microbenchmarks",
    evidence: Evidence::A,
    sources: &["rh-ocp-iot", "lnvps", "rh-rhel10cache", "ibm-iot", "kv-disk"],
    fix: Fix {
        live: Some("virsh iothreadadd DOM id --live (attach disk to it: restart)"),
        persistent: "virsh edit <iothreads>1</iothreads> and driver iothread='1'",
        needs: &[Need::VmRestart],
        undo: "more host threads; undo remove attribute",
    },
    check: Check::Domain(check),
};

/// Gives a disk an iothread: the first there is, or a new one that keeps off pinned vCPUs.
fn give(subject: &Subject<'_>, disk: &DiskFacts) -> Vec<Cure> {
    let virtio_scsi =
        |controller: &PeripheralFacts| controller.model.as_deref().is_some_and(|model| model.starts_with("virtio"));
    let controllers: Vec<&PeripheralFacts> = subject.scsi_controllers().collect();
    let driver = match (disk.bus.as_deref(), controllers.as_slice()) {
        (Some("virtio"), _) => of_disk(disk, "driver"),
        // An iothread serves a controller as a whole; which of several is the disk's is libvirt's to say.
        (Some("scsi"), [one]) if virtio_scsi(one) => Some("devices/controller[@type='scsi']/driver".to_owned()),
        _ => None,
    };
    let Some(driver) = driver else { return Vec::new() };
    if let Some(id) = subject.facts.iothreads.ids.first() {
        return vec![Cure::attribute(driver, "iothread", id.to_string())];
    }
    let mut cures = vec![
        Cure::Definition(DefinitionEdit::SetText { at: "iothreads".to_owned(), text: "1".to_owned() }),
        Cure::attribute(driver, "iothread", "1"),
    ];
    if subject.is_pinned_one_to_one() {
        match subject.housekeeping_cpus() {
            Some(cpus) => {
                let place = "cputune/iothreadpin[@iothread='1']";
                cures.push(Cure::attribute(place, "cpuset", cpus.to_string()));
            }
            None => return Vec::new(),
        }
    }
    cures
}

fn check(subject: &Subject<'_>) -> Outcome {
    let scsi = subject.scsi_controllers().any(|controller| controller.iothread.is_some());
    let object = |disk: &DiskFacts| {
        let served = match disk.bus.as_deref() {
            Some("virtio") => disk.driver.iothread.is_some() || !disk.driver.iothread_mapping.is_empty(),
            Some("scsi") => scsi,
            _ => return None,
        };
        // A vhost-user process serves its disk itself.
        let own = disk.kind == "vhostuser";
        (!served && !own).then(|| {
            let object = Object::new(format!("disk {}", disk.target), "served by the emulator thread", "an iothread");
            object.cured_by_all(give(subject, disk))
        })
    };
    Outcome::of(subject.disks().filter_map(object).collect())
}
