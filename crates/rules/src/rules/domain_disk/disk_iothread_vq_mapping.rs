//! Fast multi-queue disks spread virtqueues over several IOThreads.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::{Subject, machine_version, of_disk};

pub(crate) const RULE: Rule = Rule {
    id: "disk-iothread-vq-mapping",
    layer: Layer::DomainDisk,
    title: "Fast multi-queue disks spread virtqueues over several IOThreads",
    severity: Severity::Note,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &["domain <disk><driver queues><iothreads><iothread id><queue id>"],
    good: "disks expected > ~100k IOPS (chosen): 2-8 iothreads, round-robin or explicit, queues >= iothreads",
    applies: "virtio-blk: QEMU >= 9.0 + libvirt >= 10.0; virtio-scsi later (QEMU 10)",
    not_applies: "slow disks, HDD, few vCPUs; hosts with no spare CPUs",
    effect: "Red Hat: single iothread was the bottleneck; up to 2x+ in microbenchmarks on VMs with more than 4 vCPUs; KubeVirt: 4-8 iothreads ideal",
    evidence: Evidence::A,
    sources: &["rh-iotmap1", "rh-iotmap-db", "rh-ocp-iot", "kv-disk", "lv-iotmap"],
    fix: Fix {
        live: None,
        persistent: "<driver name='qemu' cache='none' io='native' queues='8'><iothreads><iothread id='1'/>...</iothreads></driver>",
        needs: &[Need::VmRestart],
        undo: "costs host CPUs; undo single iothread",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let mut objects = Vec::new();
    let new = subject.facts.boot.machine.as_deref().and_then(machine_version).is_some_and(|(_, major, _)| major >= 9);
    for disk in subject.disks().filter(|disk| disk.is_virtio_blk()) {
        let mapped = disk.driver.iothread_mapping.len();
        if let Some(queues) = disk.driver.queues.filter(|queues| (*queues as usize) < mapped) {
            let found = format!("{queues} queues over {mapped} iothreads");
            let object = Object::new(format!("disk {}", disk.target), found, "a queue for each iothread");
            let driver = of_disk(disk, "driver");
            // As disk-queues-auto has it, or one would undo the other.
            let enough = subject.facts.vcpus.current.min(subject.context.settings.queues_enough);
            let wanted = (mapped as u32).max(enough);
            objects.push(object.cured_by_all(driver.map(|at| Cure::attribute(at, "queues", wanted.to_string()))));
        }
        let nvme = disk.source.as_deref().is_some_and(|source| source.starts_with("/dev/nvme"));
        if mapped == 0 && nvme && new && subject.facts.vcpus.current > 4 && disk.driver.iothread.is_some() {
            let found = "one iothread for all queues of an NVMe drive";
            objects.push(Object::new(
                format!("disk {}", disk.target),
                found,
                "2 to 8 iothreads, if one is always busy",
            ));
        }
    }
    Outcome::of(objects)
}
