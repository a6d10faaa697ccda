//! A polling guest can turn off the host's halt polling.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-poll-control",
    layer: Layer::DomainCpu,
    title: "A polling guest can turn off the host's halt polling",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <features><kvm><poll-control>, <hint-dedicated>, <cpu mode>"],
    good: "on together with guest haltpoll",
    applies: "latency Linux guests",
    not_applies: "density (guest polling burns host CPU)",
    effect: "small-packet ping-pong client/server (unit not stated): bare host 31.33; host polling halt_poll_ns=300000 33.40 (93.8% of host speed); guest polling guest_halt_poll_ns=300000 with host polling off 32.73 (95.7%)",
    evidence: Evidence::A,
    sources: &["k-haltpoll", "k-ghalt", "lv-dom"],
    fix: Fix { live: None, persistent: "virsh edit", needs: &[Need::VmRestart], undo: "higher host CPU; undo off" },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let features = &subject.facts.features;
    // A Linux guest polls by itself only where it is told that its PUs are its own (cpuidle-haltpoll).
    if !subject.is_x86() || !subject.is_kvm() || features.kvm_state("hint-dedicated") != Some("on") {
        return Outcome::NotApplicable;
    }
    // QEMU gives the host's own CPU model every KVM feature the kernel has.
    let whole = matches!(subject.facts.cpu.mode.as_deref(), Some("host-passthrough" | "maximum"));
    let on = match features.kvm_state("poll-control") {
        Some(state) => state == "on",
        None => whole,
    };
    Outcome::one((!on).then(|| {
        let found = "off: guest and host both poll before a vCPU sleeps";
        Object::new("kvm poll-control", found, "on").cured_by(Cure::attribute(
            "features/kvm/poll-control",
            "state",
            "on",
        ))
    }))
}
