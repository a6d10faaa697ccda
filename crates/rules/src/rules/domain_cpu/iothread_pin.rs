//! IOThreads are pinned near their disks and off vCPU CPUs.

use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::cure::Thread;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "iothread-pin",
    layer: Layer::DomainCpu,
    title: "IOThreads are pinned near their disks and off vCPU CPUs",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <cputune><iothreadpin iothread cpuset>"],
    good: "set is disjoint from dedicated vCPU pins, on the disk controller's NUMA node; number of iothreads <= CPUs given to them",
    applies: "dedicated guests with iothreads",
    not_applies: "density",
    effect: "unquantified; IBM: no more iothreads than host CPUs or disks",
    evidence: Evidence::B,
    sources: &["lv-dom", "ibm-iot", "rh-ocp-iot"],
    fix: Fix {
        live: Some("virsh iothreadpin DOM id cpus --live"),
        persistent: "virsh edit",
        needs: &[Need::Live],
        undo: "uses host CPUs; undo",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let iothreads = &subject.facts.iothreads;
    if iothreads.ids.is_empty() || !subject.is_pinned_one_to_one() {
        return Outcome::NotApplicable;
    }
    let vcpus = subject.vcpu_cpus();
    let mut objects = Vec::new();
    for id in &iothreads.ids {
        let pin = iothreads.pins.iter().find(|(pinned, _)| pinned == id).map(|(_, cpus)| cpus);
        match pin.or(subject.facts.vcpus.cpuset.as_ref()) {
            None => {
                let found = "no pin: it can run on the vCPUs' PUs";
                let object = Object::new(format!("iothread {id}"), found, "PUs without vCPUs");
                objects.push(object.cured_by_all(subject.move_aside(Thread::Iothread(*id))));
            }
            Some(cpus) if !cpus.is_disjoint(&vcpus) => {
                let found = format!("on PUs {} of vCPUs", cpus.intersection(&vcpus));
                let object = Object::new(format!("iothread {id}"), found, "PUs without vCPUs");
                objects.push(object.cured_by_all(subject.move_aside(Thread::Iothread(*id))));
            }
            Some(_) => {}
        }
    }
    let room = iothreads.pins.iter().fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus));
    if !room.is_empty() && iothreads.ids.len() > room.len() {
        let found = format!("{} on {} PUs", iothreads.ids.len(), room.len());
        objects.push(Object::new("iothreads", found, "no more iothreads than PUs"));
    }
    Outcome::of(objects)
}
