//! Guest split locks are not silently throttling vCPUs.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "split-lock-policy-known",
    layer: Layer::HostKernel,
    title: "Guest split locks are not silently throttling vCPUs",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/proc/cpuinfo", "/proc/sys/kernel/split_lock_mitigate", "/proc/cmdline"],
    good: "split_lock_mitigate == 0, or split_lock_detect=off, on hosts whose guests all belong to one owner",
    applies: "Windows guests and games on CPUs that trap split locks",
    not_applies: "multi-tenant hosts (the penalty protects neighbours)",
    effect: "kernel doc: can make bad applications 'unbearably slow'; field report 10-20x slower guest; one report that =0 was not enough and split_lock_detect=off was needed",
    evidence: Evidence::A,
    sources: &["k-sysctl", "eve-split", "vbox-split"],
    fix: Fix {
        live: Some("sysctl kernel.split_lock_mitigate=0"),
        persistent: "/etc/sysctl.d/; or split_lock_detect=off",
        needs: &[Need::Live, Need::HostReboot],
        undo: "allows a guest to slow the whole machine; undo sysctl =1",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    // Legacy software makes such locks, and Windows guests run it most.
    if !context.has_class(WorkloadClass::Windows) {
        return Outcome::NotApplicable;
    }
    match host.system.has_flag("split_lock_detect") {
        None => return Outcome::unknown("/proc/cpuinfo"),
        Some(false) => return Outcome::NotApplicable,
        Some(true) => {}
    }
    if context.kernel_parameter("split_lock_detect") == Some("off") {
        return Outcome::Clean;
    }
    // Kernels without the setting (before 5.19) warn and slow nobody down.
    let slows = host.system.sysctl("kernel.split_lock_mitigate") == Some(1);
    Outcome::one(slows.then(|| {
        let found = "1: the kernel slows down a vCPU on every split lock, and Windows guests may make many";
        Object::new("kernel.split_lock_mitigate", found, "0, if all guests belong to one owner")
    }))
}
