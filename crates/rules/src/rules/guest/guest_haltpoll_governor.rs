//! Latency guests poll before they halt.

use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-haltpoll-governor",
    layer: Layer::Guest,
    title: "Latency guests poll before they halt",
    severity: Severity::Note,
    classes: &[WorkloadClass::Latency],
    reads: &[
        "guest /sys/devices/system/cpu/cpuidle/{current_driver,current_governor}",
        "guest /sys/module/haltpoll/parameters/guest_halt_poll_ns",
        "guest /proc/cmdline",
    ],
    good: "driver and governor haltpoll with guest_halt_poll_ns above 0 (default 200000); or idle=poll; or idle states of the hardware handed to the guest",
    applies: "latency guests with host CPUs to spare",
    not_applies: "density, overcommitted",
    effect: "small-packet ping-pong client/server (unit not stated): bare host 31.33; host polling halt_poll_ns=300000 33.40 (93.8% of host speed); guest polling guest_halt_poll_ns=300000 with host polling off 32.73 (95.7%); SAP HANA, guest spinning (earlier form of the patch, host polling off) against halt_poll_ns=200000: -3%, -3%, -4.5%, -12% time in four tests",
    evidence: Evidence::A,
    sources: &["k-haltpoll", "k-ghalt"],
    fix: Fix {
        live: Some("in the guest: modprobe cpuidle_haltpoll force=1"),
        persistent: "in the guest: modules-load.d, and options cpuidle_haltpoll force=Y",
        needs: &[Need::Live],
        undo: "uses host CPU time; undo rmmod",
    },
    check: Check::Inside(check),
};

fn check(subject: &Subject<'_>, inside: &Host) -> Outcome {
    let system = &inside.system;
    let polls_always =
        system.command_line.as_deref().is_some_and(|line| line.split(' ').any(|word| word == "idle=poll"));
    let Some(driver) = system.idle_driver.as_deref() else {
        let path = format!("/sys/devices/system/cpu/cpuidle/current_driver in {}", subject.domain.name);
        return if polls_always { Outcome::Clean } else { Outcome::unknown(path) };
    };
    // Where MWAIT is handed through (cpu-pm=on) the guest idles as the hardware does.
    if polls_always || matches!(driver, "intel_idle" | "acpi_idle") {
        return Outcome::Clean;
    }
    let governor = system.idle_governor.as_deref().unwrap_or("?");
    let off = system.module_parameters.iter().any(|it| it.name == "haltpoll.guest_halt_poll_ns" && it.value == "0");
    let found = match (driver, governor) {
        ("haltpoll", "haltpoll") if off => "guest_halt_poll_ns is 0".to_owned(),
        ("haltpoll", "haltpoll") => return Outcome::Clean,
        _ => format!("driver {driver}, governor {governor}"),
    };
    Outcome::one(Some(Object::new("idle of the guest", found, "driver and governor haltpoll")))
}
