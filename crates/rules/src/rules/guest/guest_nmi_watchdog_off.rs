//! The guest's NMI watchdog takes no performance counter.

use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-nmi-watchdog-off",
    layer: Layer::Guest,
    title: "The guest's NMI watchdog takes no performance counter",
    severity: Severity::Note,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["guest /proc/sys/kernel/nmi_watchdog"],
    good: "0, the kernel's own default in a KVM guest without a PMU",
    applies: "Linux guests",
    not_applies: "guests that are debugged; kernels without it",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["k-sysctl"],
    fix: Fix {
        live: Some("in the guest: sysctl kernel.nmi_watchdog=0"),
        persistent: "in the guest: sysctl.d",
        needs: &[Need::Live],
        undo: "the kernel no longer detects hard lockups; undo: write 1",
    },
    check: Check::Inside(check),
};

fn check(_subject: &Subject<'_>, inside: &Host) -> Outcome {
    match inside.system.sysctl("kernel.nmi_watchdog") {
        None => Outcome::NotApplicable,
        Some(0) => Outcome::Clean,
        Some(_) => Outcome::one(Some(Object::new("NMI watchdog of the guest", "on", "off"))),
    }
}
