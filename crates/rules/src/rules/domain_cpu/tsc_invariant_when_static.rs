//! Invariant TSC is exposed to guests that do not migrate.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "tsc-invariant-when-static",
    layer: Layer::DomainCpu,
    title: "Invariant TSC is exposed to guests that do not migrate",
    severity: Severity::Decide,
    classes: &[WorkloadClass::Latency],
    reads: &["domain <cpu><feature policy='require' name='invtsc'/>", "<timer name='tsc' frequency mode='native'>"],
    good: "invtsc on for guests with migration disabled or hosts with TSC scaling; guest current_clocksource tsc or kvm-clock",
    applies: "latency/HFT/databases",
    not_applies: "live-migrated guests across TSC frequencies",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["q-cpu", "lv-dom", "k-tsc"],
    fix: Fix {
        live: None,
        persistent: "virsh edit feature invtsc",
        needs: &[Need::VmRestart],
        undo: "libvirt blocks migration with invtsc unless the frequency is set; undo remove",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    if !subject.is_kvm() || !subject.is_x86() {
        return Outcome::NotApplicable;
    }
    // QEMU does not give what the processor lacks: the guest would not start.
    if subject.context.host.and_then(|host| host.system.has_flag("nonstop_tsc")) == Some(false) {
        return Outcome::NotApplicable;
    }
    let has = matches!(subject.facts.cpu.feature("invtsc"), Some("require" | "force"));
    Outcome::one(
        (!has).then(|| Object::new("CPU feature invtsc", "not asked for", "policy='require' if it never migrates")),
    )
}
