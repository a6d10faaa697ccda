//! Guests with dedicated CPUs are told so.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-hint-dedicated",
    layer: Layer::DomainCpu,
    title: "Guests with dedicated CPUs are told so",
    severity: Severity::Fault,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["domain <features><kvm><hint-dedicated state='on'/>"],
    good: "on if and only if vCPUs are pinned 1:1 and not shared",
    applies: "dedicated Linux guests",
    not_applies: "any overcommit (guest would spin instead of yielding: harmful)",
    effect: "unquantified; turns off PV spinlocks/PV TLB flush and enables guest haltpoll governor",
    evidence: Evidence::B,
    sources: &["lv-dom", "k-cpuid", "q-kvmpv"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <kvm><hint-dedicated state='on'/></kvm>",
        needs: &[Need::VmRestart],
        undo: "with overcommit: lock-holder preemption; undo off",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    if !subject.is_kvm() || !subject.is_x86() {
        return Outcome::NotApplicable;
    }
    let on = subject.facts.features.kvm_state("hint-dedicated") == Some("on");
    let pins = subject.single_pins();
    let shared =
        pins.values().filter(|pu| subject.context.owners.get(pu).is_some_and(|owners| owners.len() > 1)).count();
    let dedicated = subject.is_pinned_one_to_one() && shared == 0;
    let object = match (on, dedicated) {
        (true, false) => {
            Some(Object::new("kvm hint-dedicated", "on, although vCPUs share PUs", "off, or one PU for each vCPU"))
        }
        (false, true) if subject.class == WorkloadClass::Latency => {
            Some(Object::new("kvm hint-dedicated", "off, although each vCPU has its own PU", "on"))
        }
        _ => None,
    };
    let cure = Cure::attribute("features/kvm/hint-dedicated", "state", if on { "off" } else { "on" });
    Outcome::one(object.map(|object| object.cured_by(cure)))
}
