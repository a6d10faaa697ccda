//! Guests run under KVM, not TCG emulation.

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-hw-accel-in-use",
    layer: Layer::HostKernel,
    title: "Guests run under KVM, not TCG emulation",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["domain/@type"],
    good: "type='kvm' for every domain; whether that KVM runs on the processor is the rule kvm-runs-on-processor",
    applies: "every x86/arm host",
    not_applies: "deliberate cross-architecture emulation",
    effect: "unquantified here (order-of-magnitude in practice)",
    evidence: Evidence::B,
    sources: &["lv-dom", "q-cpu"],
    fix: Fix {
        live: Some("modprobe kvm_intel (or kvm_amd); cannot switch a running domain"),
        persistent: "virsh edit: <domain type='kvm'>; enable VT-x/AMD-V in firmware",
        needs: &[Need::VmRestart, Need::Firmware],
        undo: "none; undo by restoring type='qemu'",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    // Other architectures are emulated on purpose.
    if !subject.is_x86() {
        return Outcome::NotApplicable;
    }
    let emulated = subject.facts.kind == "qemu";
    Outcome::one(emulated.then(|| Object::new("domain type", "qemu: every instruction is emulated", "kvm")))
}
