//! Turbo/boost is available.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "turbo-boost-enabled",
    layer: Layer::HostCpu,
    title: "Turbo/boost is available",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/devices/system/cpu/intel_pstate/no_turbo", "/sys/devices/system/cpu/cpufreq/boost"],
    good: "no_turbo == 0 / boost == 1",
    applies: "throughput classes",
    not_applies: "RT/jitter-critical or benchmarking hosts may fix frequency on purpose",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-tp", "k-cpu-abi"],
    fix: Fix {
        live: Some("echo 0 > .../intel_pstate/no_turbo or echo 1 > cpufreq/boost"),
        persistent: "tuned boost=1; firmware",
        needs: &[Need::Live],
        undo: "frequency variance; undo inverse write",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let Some(boost) = &host.system.boost else {
        // Virtual machines and hosts whose firmware keeps the frequency to itself have no such file.
        let scaled = !host.system.frequency.is_empty();
        let missing = "/sys/devices/system/cpu/intel_pstate/no_turbo or /sys/devices/system/cpu/cpufreq/boost";
        return if scaled { Outcome::unknown(missing) } else { Outcome::NotApplicable };
    };
    if boost.allowed {
        return Outcome::Clean;
    }
    // Where latency counts, a frequency that never changes may be wanted.
    if context.has_class(WorkloadClass::Latency) {
        return Outcome::NotApplicable;
    }
    let value = if boost.path.ends_with("no_turbo") { "0" } else { "1" };
    let object = Object::new("boost", "off: processors stay at their base frequency", "on");
    Outcome::one(Some(object.cured_by(Cure::kernel_file(&boost.path, value))))
}
