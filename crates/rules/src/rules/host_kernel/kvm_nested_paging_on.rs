//! Hardware nested paging and tagged TLB are on.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-nested-paging-on",
    layer: Layer::HostKernel,
    title: "Hardware nested paging and tagged TLB are on",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/module/kvm_intel/parameters/{ept,vpid,unrestricted_guest}", "/sys/module/kvm_amd/parameters/npt"],
    good: "ept/npt == Y|1, vpid == Y, unrestricted_guest == Y",
    applies: "all x86 hosts",
    not_applies: "host that disabled EPT on purpose as a full L1TF mitigation; hosts that are themselves software-virtualised (e.g. PVM) where tdp_mmu=N is normal",
    effect: "'significant' cost when EPT is disabled (kernel doc, no number)",
    evidence: Evidence::B,
    sources: &["k-l1tf", "k-params", "talk-rhel63-io"],
    fix: Fix {
        live: Some("stop all VMs, modprobe -r kvm_intel; modprobe kvm_intel ept=1"),
        persistent: "remove ept=0/npt=0 from /etc/modprobe.d/*.conf and kernel command line",
        needs: &[Need::ModuleReload, Need::HostReboot],
        undo: "re-exposes L1TF on affected CPUs if EPT was off as mitigation; undo by restoring the option",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let names = ["kvm_intel.ept", "kvm_intel.vpid", "kvm_intel.unrestricted_guest", "kvm_amd.npt"];
    let known: Vec<_> =
        host.system.module_parameters.iter().filter(|setting| names.contains(&setting.name.as_str())).collect();
    if known.is_empty() {
        return Outcome::unknown("/sys/module/{kvm_intel,kvm_amd}/parameters");
    }
    let off = known.into_iter().filter(|setting| matches!(setting.value.trim(), "N" | "0"));
    Outcome::of(off.map(|setting| Object::new(setting.name.clone(), setting.value.trim(), "Y")).collect())
}
