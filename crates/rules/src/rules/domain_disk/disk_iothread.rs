//! Busy disks have an IOThread.

use nearmetal_domain::DiskFacts;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

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
        (!served && !own)
            .then(|| Object::new(format!("disk {}", disk.target), "served by the emulator thread", "an iothread"))
    };
    Outcome::of(subject.disks().filter_map(object).collect())
}
