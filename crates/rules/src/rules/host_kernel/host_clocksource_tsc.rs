//! Host clocksource is tsc.

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "host-clocksource-tsc",
    layer: Layer::HostKernel,
    title: "Host clocksource is tsc",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/devices/system/clocksource/clocksource0/current_clocksource"],
    good: "current == tsc",
    applies: "x86 with invariant TSC",
    not_applies: "old or buggy-firmware hosts; nested guests may show kvm-clock/hyperv",
    effect: "kernel commit: TSC reads avoid a ring transition / platform access ('much more efficient'); unquantified",
    evidence: Evidence::B,
    sources: &["k-tsc", "k-params"],
    fix: Fix {
        live: Some("echo tsc > .../current_clocksource (only if available)"),
        persistent: "fix firmware; tsc=reliable only on known-good hardware",
        needs: &[Need::Live],
        undo: "forcing tsc on unsynchronised sockets makes time go backwards; undo echo hpet",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    if host.system.hypervisor == Some(true) {
        return Outcome::NotApplicable;
    }
    let Some(clock) = host.system.clocksource.as_deref() else {
        return Outcome::unknown("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    };
    // Other architectures have clocks of their own.
    let slow = matches!(clock, "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit");
    // Where nobody asked for another clock, the kernel itself found the TSC wanting: firmware, not a setting.
    let asked =
        context.kernel_parameter("clocksource").map(|_| Cure::NoKernelArgument { name: "clocksource".to_owned() });
    Outcome::one(slow.then(|| Object::new("clock source", clock, "tsc").cured_by_all(asked)))
}
