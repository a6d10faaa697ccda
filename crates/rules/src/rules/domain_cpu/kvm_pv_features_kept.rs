//! KVM paravirtual features are not hidden or disabled.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-pv-features-kept",
    layer: Layer::DomainCpu,
    title: "KVM paravirtual features are not hidden or disabled",
    severity: Severity::Decide,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["domain <features><kvm><hidden state>, <feature policy='disable' name='kvm-*'>"],
    good: "hidden off; pv-eoi, steal-time, kvmclock, pv-ipi, pv-sched-yield, asyncpf on",
    applies: "all Linux guests",
    not_applies: "GPU drivers/anti-cheat that refuse VMs (pay the price knowingly)",
    effect: "commit 4180bf1b655a: PV IPI broadcast +22% (80 vCPU, x2apic cluster mode)",
    evidence: Evidence::A,
    sources: &["q-kvmpv", "k-cpuid", "k-pvipi"],
    fix: Fix { live: None, persistent: "virsh edit", needs: &[Need::VmRestart], undo: "low; undo hidden on" },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let mut objects = Vec::new();
    if facts.features.kvm_state("hidden") == Some("on") {
        objects.push(Object::new("kvm hidden", "on", "off, unless a driver refuses to run in a guest"));
    }
    let disabled = facts.cpu.features.iter().filter(|(name, policy)| {
        (name.starts_with("kvm-") || name.starts_with("kvm_")) && matches!(policy.as_str(), "disable" | "forbid")
    });
    objects
        .extend(disabled.map(|(name, policy)| Object::new(format!("CPU feature {name}"), policy.clone(), "left on")));
    Outcome::of(objects)
}
