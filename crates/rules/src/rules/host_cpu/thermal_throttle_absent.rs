//! CPUs are not throttling.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "thermal-throttle-absent",
    layer: Layer::HostCpu,
    title: "CPUs are not throttling",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_total_time_ms of one PU each package",
        "/proc/uptime",
    ],
    good: "at most `throttled_percent` of the time since boot",
    applies: "bare metal x86",
    not_applies: "VMs",
    effect: "unquantified",
    evidence: Evidence::C,
    sources: &["k-cpu-abi"],
    fix: Fix { live: None, persistent: "cooling/BIOS power limits", needs: &[Need::Firmware], undo: "-" },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    if host.system.hypervisor == Some(true) {
        return Outcome::NotApplicable;
    }
    let counted = host.system.throttling.iter().filter_map(|package| Some((package, package.time?)));
    let counted: Vec<_> = counted.collect();
    if counted.is_empty() {
        return Outcome::unknown(
            "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_total_time_ms (Intel)",
        );
    }
    let Some(uptime) = host.system.uptime.filter(|uptime| *uptime > 0) else { return Outcome::unknown("/proc/uptime") };
    let most = context.settings.throttled_percent;
    let mut objects = Vec::new();
    for (package, time) in counted {
        let percent = time as f64 / 10.0 / uptime as f64;
        if percent > most {
            let what = package
                .package
                .map_or_else(|| format!("package of PU {}", package.cpu), |number| format!("package {number}"));
            let found = format!("throttled by heat for {percent:.1} % of the time since boot");
            objects.push(Object::new(what, found, format!("at most {most} %")));
        }
    }
    Outcome::of(objects)
}
