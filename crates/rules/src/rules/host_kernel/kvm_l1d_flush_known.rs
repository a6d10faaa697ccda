//! L1D flush on VM entry matches CPU vulnerability and tenancy.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-l1d-flush-known",
    layer: Layer::HostKernel,
    title: "L1D flush on VM entry matches CPU vulnerability and tenancy",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/sys/module/kvm_intel/parameters/vmentry_l1d_flush", "/sys/devices/system/cpu/vulnerabilities/l1tf"],
    good: "'Not affected' (any) ; affected: cond for shared hosts; 'always' only by policy; 'never' only for single-tenant trusted guests",
    applies: "Intel CPUs affected by L1TF",
    not_applies: "AMD, newer Intel",
    effect: "flush costs 1% to 50% depending on VM-exit rate and computation; minimal when exits are rare",
    evidence: Evidence::A,
    sources: &["k-l1tf", "k-params"],
    fix: Fix {
        live: Some("echo cond > /sys/module/kvm_intel/parameters/vmentry_l1d_flush"),
        persistent: "kvm-intel.vmentry_l1d_flush=cond",
        needs: &[Need::Live],
        undo: "security trade; undo by writing the old value",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let flaw = host.system.vulnerabilities.iter().find(|setting| setting.name == "l1tf");
    let Some(flaw) = flaw else { return Outcome::unknown("/sys/devices/system/cpu/vulnerabilities/l1tf") };
    if flaw.value.trim() == "Not affected" {
        return Outcome::Clean;
    }
    let Some(flush) = context.module_parameter("kvm_intel.vmentry_l1d_flush") else {
        return Outcome::unknown("/sys/module/kvm_intel/parameters/vmentry_l1d_flush");
    };
    let object = match flush {
        "never" => Some("cond, unless all guests are trusted"),
        "always" => Some("cond, unless a policy says always"),
        _ => None,
    };
    Outcome::one(object.map(|wanted| Object::new("kvm_intel.vmentry_l1d_flush", flush, wanted)))
}
