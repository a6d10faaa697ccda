//! vCPU threads do not wait for CPU.

use nearmetal_host::ThreadRole;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "host-runqueue-and-steal-low",
    layer: Layer::HostCpu,
    title: "vCPU threads do not wait for CPU",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Windows,
        WorkloadClass::Passthrough,
    ],
    reads: &["/proc/PID/task/TID/schedstat", "/proc/PID/stat", "/proc/uptime"],
    good: "time ready without a PU, over the life of the guest: at most `wait_dedicated_percent` where each vCPU has \
        its own PU, else `wait_percent`; steal in the guest ~0 when pinned",
    applies: "all",
    not_applies: "burstable tiers by design",
    effect: "unquantified (threshold is this catalogue's choice)",
    evidence: Evidence::C,
    sources: &["k-cpuid", "k-halt"],
    fix: Fix { live: Some("rebalance pins/migrate"), persistent: "placement policy", needs: &[Need::Live], undo: "-" },
    check: Check::Domain(check),
};

/// A guest younger than this has its start in its figures and little else.
const YOUNG_SECONDS: u64 = 600;
/// Ticks of /proc/PID/stat each second (USER_HZ), the same on every architecture that has KVM.
const TICKS: u64 = 100;

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let Some(process) = subject.process else { return Outcome::NotApplicable };
    let has_vcpus = process.threads.iter().any(|thread| matches!(thread.role, ThreadRole::Vcpu(_)));
    if !has_vcpus {
        return Outcome::NotApplicable;
    }
    let Some(uptime) = host.system.uptime else { return Outcome::unknown("/proc/uptime") };
    let Some(start) = process.start_time else { return Outcome::unknown("/proc/PID/stat") };
    if process.vcpu_waits.is_empty() {
        return Outcome::unknown("/proc/PID/task/TID/schedstat");
    }
    let age = uptime.saturating_sub(start / TICKS);
    if age < YOUNG_SECONDS {
        return Outcome::NotApplicable;
    }
    let settings = subject.context.settings;
    let most = if subject.is_pinned_one_to_one() { settings.wait_dedicated_percent } else { settings.wait_percent };
    let waits = process.vcpu_waits.iter().map(|(vcpu, wait)| (vcpu, *wait as f64 / 1e9 / age as f64 * 100.0));
    let objects = waits.filter(|(_, percent)| *percent > most).map(|(vcpu, percent)| {
        let found = format!("ready but without a PU for {percent:.1} % of its life");
        Object::new(format!("vCPU {vcpu}"), found, format!("at most {most} %"))
    });
    Outcome::of(objects.collect())
}
