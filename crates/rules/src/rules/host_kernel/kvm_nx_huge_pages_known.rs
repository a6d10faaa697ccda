//! iTLB-multihit workaround is on only where the CPU needs it.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "kvm-nx-huge-pages-known",
    layer: Layer::HostKernel,
    title: "iTLB-multihit workaround is on only where the CPU needs it",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/sys/module/kvm/parameters/nx_huge_pages", "/sys/devices/system/cpu/vulnerabilities/itlb_multihit"],
    good: "'Not affected' -> N; affected and untrusted guests -> Y; RT/NFV host with trusted guests -> N accepted",
    applies: "latency/RT classes; huge-page-backed guests",
    not_applies: "multi-tenant hosts on affected Intel parts (security first)",
    effect: "about 100 us latency spikes observed with oslat on many isolated CPUs when enabled",
    evidence: Evidence::A,
    sources: &["k-multihit", "tuned-363", "t-rvh"],
    fix: Fix {
        live: Some("echo off > /sys/module/kvm/parameters/nx_huge_pages (0644)"),
        persistent: "options kvm nx_huge_pages=0 in /etc/modprobe.d/kvm.rt.tuned.conf",
        needs: &[Need::Live],
        undo: "re-opens a guest-triggered host hang on affected CPUs; undo echo auto",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let Some(split) = context.module_parameter("kvm.nx_huge_pages") else {
        return Outcome::unknown("/sys/module/kvm/parameters/nx_huge_pages");
    };
    let flaw = host.system.vulnerabilities.iter().find(|setting| setting.name == "itlb_multihit");
    let Some(flaw) = flaw else { return Outcome::unknown("/sys/devices/system/cpu/vulnerabilities/itlb_multihit") };
    let on = matches!(split, "Y" | "1" | "force");
    let affected = flaw.value.trim() != "Not affected";
    let object = match (on, affected) {
        (true, false) => Some(("on, although the processor is not affected", "N")),
        (false, true) => Some(("off, although the processor is affected", "Y unless all guests are trusted")),
        _ => None,
    };
    Outcome::one(object.map(|(found, wanted)| Object::new("kvm.nx_huge_pages", found, wanted)))
}
