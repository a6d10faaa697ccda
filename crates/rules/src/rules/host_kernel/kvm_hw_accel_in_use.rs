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
    reads: &[
        "domain/@type",
        "a guest of a few dozen bytes (nearmetal-probe kvm), run once a boot on the machine itself",
    ],
    good: "type='kvm' for every domain, and KVM that runs guest code on the processor",
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
    if subject.facts.kind == "qemu" {
        return Outcome::one(Some(Object::new("domain type", "qemu: every instruction is emulated", "kvm")));
    }
    // /dev/kvm says nothing: some hosts emulate behind it, thousands of times slower. Where nobody tried, the domain's
    // own word is all there is.
    let emulates = subject.context.host.and_then(|host| host.system.kvm_accelerates) == Some(false);
    let found = "it runs guests by emulation, more than ten times slower than the processor";
    Outcome::one((subject.is_kvm() && emulates).then(|| {
        Object::new("KVM of this host", found, "KVM on the processor: another machine, or nested virtualisation there")
    }))
}
