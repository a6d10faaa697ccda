//! Threads of a running guest run where its stored definition says.

use nearmetal_host::ThreadRole;
use nearmetal_units::CpuSet;

use crate::cure::{Cure, Thread};
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "pins-as-defined",
    layer: Layer::DomainCpu,
    title: "Threads run on the PUs that the stored definition names",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/PID/task/*/status Cpus_allowed_list", "domain <vcpupin>, <emulatorpin>, <iothreadpin>, stored"],
    good: "for each pinned thread, what the kernel allows is what the stored definition says",
    applies: "running domains with a stored definition that pins",
    not_applies: "floating threads; pins on PUs that are offline",
    effect: "unquantified; measurements made with the definition do not apply to the running guest",
    evidence: Evidence::C,
    sources: &["lv-dom"],
    fix: Fix {
        live: Some("virsh vcpupin DOM N PUS --live (emulatorpin, iothreadpin)"),
        persistent: "where the live pins are the right ones: virsh vcpupin DOM N PUS --config",
        needs: &[Need::Live],
        undo: "virsh vcpupin with the old PUs",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(process) = subject.process else { return Outcome::NotApplicable };
    let stored = subject.context.domains.iter().find(|domain| domain.name == subject.facts.name);
    let Some(stored) = stored.and_then(|domain| domain.defined.as_ref()) else { return Outcome::NotApplicable };
    let online = &subject.context.online;
    let mut objects = Vec::new();
    let mut pinned = 0;
    for thread in &process.threads {
        let wanted = match thread.role {
            ThreadRole::Vcpu(number) => pin_of(&stored.vcpu_pins, number).map(|cpus| (Thread::Vcpu(number), cpus)),
            ThreadRole::Iothread(number) => {
                pin_of(&stored.iothreads.pins, number).map(|cpus| (Thread::Iothread(number), cpus))
            }
            ThreadRole::Emulator => stored.emulator_pin.as_ref().map(|cpus| (Thread::Emulator, cpus)),
            // libvirt has no element for them: they come and go with the emulator thread's pin.
            ThreadRole::Vhost | ThreadRole::Worker | ThreadRole::Other => None,
        };
        let Some((which, wanted)) = wanted else { continue };
        let Some(found) = &thread.affinity else {
            return Outcome::unknown(format!("/proc/{}/status", thread.id));
        };
        // The kernel shows only PUs that are online.
        let wanted = if online.is_empty() { wanted.clone() } else { wanted.intersection(online) };
        pinned += 1;
        if !wanted.is_empty() && *found != wanted {
            let object = Object::new(which.to_string(), format!("on PUs {found}"), format!("{wanted}, as defined"));
            objects.push(object.cured_by(Cure::LivePin { thread: which, cpus: wanted }));
        }
    }
    if pinned == 0 { Outcome::NotApplicable } else { Outcome::of(objects) }
}

fn pin_of(pins: &[(u32, CpuSet)], number: u32) -> Option<&CpuSet> {
    pins.iter().find(|(known, _)| *known == number).map(|(_, cpus)| cpus)
}
