//! Hardware nested paging and tagged TLB are on.

use nearmetal_host::Setting;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::parameters::switch_on;
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
    // Without EPT the kernel has no unrestricted guests either. EPT is also turned off against L1TF, which is a choice.
    let flaw = host.system.vulnerabilities.iter().find(|setting| setting.name == "l1tf");
    let safe = flaw.is_some_and(|flaw| flaw.value.trim() == "Not affected");
    let on = |setting: &Setting| match setting.name.as_str() {
        "kvm_intel.ept" => safe,
        "kvm_intel.unrestricted_guest" => {
            safe || context.module_parameter("kvm_intel.ept").is_some_and(|ept| matches!(ept, "Y" | "1"))
        }
        _ => true,
    };
    let object = |setting: &Setting| {
        let cures = on(setting).then(|| switch_on(context, setting)).into_iter().flatten();
        Object::new(setting.name.clone(), setting.value.trim(), "Y").cured_by_all(cures)
    };
    Outcome::of(off.map(object).collect())
}
