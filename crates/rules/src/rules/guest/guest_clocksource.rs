//! The guest reads its clock without an exit.

use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::host_kernel::host_clocksource_tsc::{CLOCKSOURCE, is_slow_clock};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-clocksource",
    layer: Layer::Guest,
    title: "The guest reads its clock without an exit",
    severity: Severity::Loss,
    classes: &[
        WorkloadClass::General,
        WorkloadClass::Density,
        WorkloadClass::Throughput,
        WorkloadClass::Latency,
        WorkloadClass::Passthrough,
    ],
    reads: &["guest /sys/devices/system/clocksource/clocksource0/current_clocksource"],
    good: "kvm-clock, tsc or hyperv_clocksource (x86), arch_sys_counter (arm64); never acpi_pm, hpet, pit, jiffies",
    applies: "Linux guests",
    not_applies: "-",
    effect: "'much more efficient' without an exit (kernel commit); unquantified",
    evidence: Evidence::B,
    sources: &["k-tsc", "k-cpuid"],
    fix: Fix {
        live: Some("in the guest: echo kvm-clock > /sys/devices/system/clocksource/clocksource0/current_clocksource"),
        persistent: "in the guest: no clocksource= on its command line",
        needs: &[Need::Live],
        undo: "none; undo echo the old name",
    },
    check: Check::Inside(check),
};

fn check(subject: &Subject<'_>, inside: &Host) -> Outcome {
    let Some(clock) = inside.system.clocksource.as_deref() else {
        return Outcome::unknown(format!("{CLOCKSOURCE} in {}", subject.domain.name));
    };
    Outcome::one(is_slow_clock(clock).then(|| Object::new("clock source of the guest", clock, "kvm-clock or tsc")))
}
