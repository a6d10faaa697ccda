//! NMI watchdog, stat timer and timer migration do not disturb dedicated CPUs.

use nearmetal_host::Sysctl;
use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "lockup-watchdogs-off-latency",
    layer: Layer::HostKernel,
    title: "NMI watchdog, stat timer and timer migration do not disturb dedicated CPUs",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/sys/kernel/nmi_watchdog", "/proc/sys/vm/stat_interval", "/proc/sys/kernel/timer_migration"],
    good: "nmi_watchdog 0, stat_interval 10, timer_migration 0 (values of tuned network-latency)",
    applies: "latency/RT/NFV",
    not_applies: "general hosts keep watchdogs for diagnosis",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-nl", "k-sysctl"],
    fix: Fix {
        live: Some("sysctl kernel.nmi_watchdog=0 vm.stat_interval=10 kernel.timer_migration=0"),
        persistent: "/etc/sysctl.d or tuned-adm profile network-latency",
        needs: &[Need::Live, Need::HostReboot],
        undo: "the kernel no longer reports hard lockups; frees one PMU counter; undo sysctl defaults 1/1/1",
    },
    check: Check::Host(check),
};

/// Name, the least and the most that is good, the value to set: those of tuned's network-latency.
const WANTED: [(&str, i64, i64, i64); 3] =
    [("kernel.nmi_watchdog", 0, 0, 0), ("kernel.timer_migration", 0, 0, 0), ("vm.stat_interval", 10, i64::MAX, 10)];

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    if !context.has_class(WorkloadClass::Latency) {
        return Outcome::NotApplicable;
    }
    // Every kernel has this one; the others depend on how it was built.
    if host.system.sysctl("vm.stat_interval").is_none() {
        return Outcome::unknown("/proc/sys/vm/stat_interval");
    }
    let mut objects = Vec::new();
    for (name, least, most, wanted) in WANTED {
        let Some(value) = host.system.sysctl(name).filter(|value| !(least..=most).contains(value)) else { continue };
        let object = Object::new(name, value.to_string(), wanted.to_string());
        objects.push(object.cured_by(Cure::kernel_file(Sysctl::path_of(name), wanted.to_string())));
    }
    Outcome::of(objects)
}
