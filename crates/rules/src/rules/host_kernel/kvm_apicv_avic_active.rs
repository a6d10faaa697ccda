//! Interrupt virtualisation (APICv/IPIv, AVIC/x2AVIC, posted interrupts) is on and not inhibited.

use nearmetal_domain::DomainFacts;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::parameters::switch_on;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-apicv-avic-active",
    layer: Layer::HostKernel,
    title: "Interrupt virtualisation (APICv/IPIv, AVIC/x2AVIC, posted interrupts) is on and not inhibited",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/sys/module/kvm_intel/parameters/enable_apicv",
        "/sys/module/kvm_amd/parameters/avic",
        "domain <hostdev>",
    ],
    good: "Y where hardware has it; no PIT_REINJ / HYPERV(AutoEOI) / NESTED / X2APIC / BLOCKIRQ inhibit raised for the VM",
    applies: "interrupt-heavy guests: VFIO NIC/NVMe, many IPIs",
    not_applies: "kernel-selected off because of an erratum (#1235 disables IPIv on family 17h/18h); RT hosts that use polling only",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["libkrun-avic", "ch-avic", "k-avic", "deepin-ipiv", "q-pit", "q-hyperv"],
    fix: Fix {
        live: None,
        persistent: "/etc/modprobe.d/kvm.conf 'options kvm_amd avic=1'; on AMD use <timer name='pit' tickpolicy='discard'/> so that QEMU calls KVM_REINJECT_CONTROL(0)",
        needs: &[Need::ModuleReload, Need::VmRestart],
        undo: "older kernels need nested=0 for AVIC (<5.19) and x2apic off in guest before x2AVIC (6.0); discard drops missed PIT ticks, harmless to modern guests; undo by removing both",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let direct = |facts: &DomainFacts| !facts.hostdevs.is_empty();
    if !context.domains.iter().filter_map(Domain::in_force).any(direct) {
        return Outcome::NotApplicable;
    }
    let names = ["kvm_intel.enable_apicv", "kvm_amd.avic"];
    let known: Vec<_> =
        host.system.module_parameters.iter().filter(|setting| names.contains(&setting.name.as_str())).collect();
    // What the processor cannot do is not switched off. Intel's is a feature of VMX that cpuinfo does not list.
    if host.system.has_flag("svm") == Some(true) && host.system.has_flag("avic") == Some(false) {
        return Outcome::NotApplicable;
    }
    if known.is_empty() {
        return Outcome::unknown("/sys/module/{kvm_intel/parameters/enable_apicv,kvm_amd/parameters/avic}");
    }
    let off = known.into_iter().filter(|setting| matches!(setting.value.trim(), "N" | "0"));
    Outcome::of(
        off.map(|setting| {
            // Before Linux 6.0 AVIC also asks for guests without x2APIC, which no program decides for them.
            let able =
                setting.name != "kvm_amd.avic" || host.system.kernel_version().is_some_and(|version| version >= (6, 0));
            Object::new(setting.name.clone(), setting.value.trim(), "Y on hosts that pass devices through")
                .cured_by_all(able.then(|| switch_on(context, setting)).into_iter().flatten())
        })
        .collect(),
    )
}
