//! No thread is pinned to PUs that are offline.

use nearmetal_units::CpuSet;

use crate::cure::Thread;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "pin-on-offline-cpu",
    layer: Layer::DomainCpu,
    title: "No thread is pinned to PUs that are offline",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/sys/devices/system/cpu/online", "domain <vcpupin>, <emulatorpin>, <iothreadpin>"],
    good: "each pin has an online PU",
    applies: "all",
    not_applies: "-",
    effect: "the domain does not start",
    evidence: Evidence::B,
    sources: &["lv-dom"],
    fix: Fix {
        live: Some("virsh vcpupin DOM N PU --live"),
        persistent: "virsh vcpupin DOM N PU --config",
        needs: &[Need::Live, Need::VmRestart],
        undo: "virsh vcpupin with the old PUs",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    if subject.context.online.is_empty() {
        return Outcome::no_host();
    }
    let facts = subject.facts;
    let vcpus = facts.vcpu_pins.iter().map(|(vcpu, cpus)| (Thread::Vcpu(*vcpu), cpus));
    let iothreads = facts.iothreads.pins.iter().map(|(id, cpus)| (Thread::Iothread(*id), cpus));
    let emulator = facts.emulator_pin.iter().map(|cpus| (Thread::Emulator, cpus));
    let off = vcpus.chain(iothreads).chain(emulator).filter(|(_, cpus)| cpus.is_disjoint(&subject.context.online));
    let object = |(thread, cpus): (Thread, &CpuSet)| {
        let found = format!("pinned to PUs {cpus}, none of them online");
        let object = Object::new(thread.to_string(), found, "online PUs");
        // Where a vCPU belongs is the planner's to say.
        let aside = if matches!(thread, Thread::Vcpu(_)) { None } else { subject.move_aside(thread) };
        object.cured_by_all(aside)
    };
    Outcome::of(off.map(object).collect())
}
