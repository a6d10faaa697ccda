//! Hyper-V SynIC does not turn off APICv/AVIC.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "hyperv-avic-compatible",
    layer: Layer::DomainCpu,
    title: "Hyper-V SynIC does not turn off APICv/AVIC",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Windows],
    reads: &[
        "domain <features><hyperv><synic>, <avic>",
        "/sys/module/kvm_intel/parameters/enable_apicv",
        "/sys/module/kvm_amd/parameters/avic",
    ],
    good: "if synic on: avic (hv-apicv) on, libvirt >= 8.10",
    applies: "Windows on hosts with APICv/AVIC",
    not_applies: "-",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["q-hyperv", "lv-dom", "k-avic"],
    fix: Fix {
        live: None,
        persistent: "<hyperv><avic state='on'/>",
        needs: &[Need::VmRestart],
        undo: "old Windows versions that insist on AutoEOI; undo: off",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(hyperv) = &subject.facts.features.hyperv else { return Outcome::NotApplicable };
    if !subject.is_x86() || !hyperv.has("synic") {
        return Outcome::NotApplicable;
    }
    let Some(_) = subject.context.host else { return Outcome::no_host() };
    let context = subject.context;
    let active = ["kvm_intel.enable_apicv", "kvm_amd.avic"].into_iter().find_map(|name| context.module_parameter(name));
    match active {
        None => return Outcome::unknown("/sys/module/{kvm_intel/parameters/enable_apicv,kvm_amd/parameters/avic}"),
        Some("Y" | "1") => {}
        Some(_) => return Outcome::NotApplicable,
    }
    Outcome::one((!hyperv.has("avic")).then(|| {
        let found = "synic without avic: Windows uses AutoEOI, which turns off APICv/AVIC";
        Object::new("Hyper-V avic", found, "on").cured_by(Cure::attribute("features/hyperv/avic", "state", "on"))
    }))
}
