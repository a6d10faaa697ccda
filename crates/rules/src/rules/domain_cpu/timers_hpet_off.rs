//! The guest has no more emulated timers than it needs.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "timers-hpet-off",
    layer: Layer::DomainCpu,
    title: "The guest has no more emulated timers than it needs",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "domain <clock offset><timer name='hpet' present>, <timer name='pit' tickpolicy>, <timer name='rtc' tickpolicy>, <timer name='kvmclock'>, <timer name='tsc' mode>",
    ],
    good: "hpet present='no'; pit tickpolicy='delay' (or 'discard' for AVIC); rtc tickpolicy='catchup' for Windows; kvmclock/hypervclock present",
    applies: "x86 guests",
    not_applies: "guests that need HPET (none common)",
    effect: "unquantified; fewer timer exits at idle",
    evidence: Evidence::B,
    sources: &["lv-dom", "q-pit", "rh-rhel10cpu"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <clock>",
        needs: &[Need::VmRestart],
        undo: "low; undo present='yes'",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    // A microvm has none of a PC's timers.
    let pc = subject.facts.boot.machine.as_deref() != Some("microvm");
    if !subject.is_kvm() || !subject.is_x86() || !pc {
        return Outcome::NotApplicable;
    }
    let set = |name: &str, attribute: &str, value: &str| {
        Cure::attribute(format!("clock/timer[@name='{name}']"), attribute, value)
    };
    let timer = |name: &str| subject.facts.timers.iter().find(|timer| timer.name == name);
    let mut objects = Vec::new();
    if timer("hpet").and_then(|timer| timer.present.as_deref()) != Some("no") {
        objects.push(Object::new("timer hpet", "present", "present='no'").cured_by(set("hpet", "present", "no")));
    }
    let windows = subject.class == WorkloadClass::Windows;
    if !windows && timer("kvmclock").and_then(|timer| timer.present.as_deref()) == Some("no") {
        let object = Object::new("timer kvmclock", "present='no'", "present");
        objects.push(object.cured_by(set("kvmclock", "present", "yes")));
    }
    if windows && timer("rtc").and_then(|timer| timer.tickpolicy.as_deref()) != Some("catchup") {
        let object = Object::new("timer rtc", "without tickpolicy='catchup'", "tickpolicy='catchup'");
        objects.push(object.cured_by(set("rtc", "tickpolicy", "catchup")));
    }
    Outcome::of(objects)
}
