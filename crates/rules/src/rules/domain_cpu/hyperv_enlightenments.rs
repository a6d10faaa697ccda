//! Windows guests have the full Hyper-V enlightenment set.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "hyperv-enlightenments",
    layer: Layer::DomainCpu,
    title: "Windows guests have the full Hyper-V enlightenment set",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Windows],
    reads: &[
        "domain <features><hyperv mode> relaxed vapic spinlocks(retries=8191) vpindex runtime synic stimer(direct) reset frequencies tlbflush ipi (evmcs on Intel nested)",
        "<clock><timer name='hypervclock' present='yes'/>",
    ],
    good: "relaxed, vapic, spinlocks, vpindex, synic, stimer, frequencies, tlbflush, ipi, hypervclock on (or mode='passthrough' on single-host labs)",
    applies: "Windows guests",
    not_applies: "Linux guests (KVM PV features are better)",
    effect: "unquantified here; QEMU doc: speeds Windows by avoiding exits",
    evidence: Evidence::B,
    sources: &["q-hyperv", "lv-dom", "pve-qm"],
    fix: Fix {
        live: None,
        persistent: "virt-xml DOM --edit --features ... ; virsh edit",
        needs: &[Need::VmRestart],
        undo: "some combinations need each other (stimer needs synic, tlbflush/ipi need vpindex); undo remove",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    if !subject.is_x86() {
        return Outcome::NotApplicable;
    }
    let wanted = ["relaxed", "vapic", "spinlocks", "vpindex", "synic", "stimer", "frequencies", "tlbflush", "ipi"];
    let hyperv = subject.facts.features.hyperv.as_ref();
    let has = |name: &str| hyperv.is_some_and(|hyperv| hyperv.has(name));
    let missing: Vec<&str> = wanted.into_iter().filter(|name| !has(name)).collect();
    let mut objects = Vec::new();
    if !missing.is_empty() {
        let mut object = Object::new("Hyper-V enlightenments", format!("without {}", missing.join(", ")), "all on");
        for name in &missing {
            let place = format!("features/hyperv/{name}");
            object = object.cured_by(Cure::attribute(&place, "state", "on"));
            if *name == "spinlocks" {
                object = object.cured_by(Cure::attribute(place, "retries", "8191"));
            }
        }
        objects.push(object);
    }
    // `passthrough` gives all that KVM has, the clock included.
    let whole = hyperv.is_some_and(|hyperv| hyperv.mode.as_deref() == Some("passthrough"));
    let clock = whole
        || subject
            .facts
            .timers
            .iter()
            .any(|timer| timer.name == "hypervclock" && timer.present.as_deref() != Some("no"));
    if !clock {
        let cure = Cure::attribute("clock/timer[@name='hypervclock']", "present", "yes");
        objects.push(Object::new("timer hypervclock", "absent", "present='yes'").cured_by(cure));
    }
    Outcome::of(objects)
}
