//! The guest may use transparent huge pages.

use nearmetal_host::Host;
use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-thp",
    layer: Layer::Guest,
    title: "The guest may use transparent huge pages",
    severity: Severity::Loss,
    classes: &[WorkloadClass::General, WorkloadClass::Density, WorkloadClass::Throughput, WorkloadClass::Passthrough],
    reads: &["guest /sys/kernel/mm/transparent_hugepage/enabled"],
    good: "always or madvise (databases that manage hugepages: madvise and their own hugepages)",
    applies: "general Linux guests",
    not_applies: "latency-sensitive guests such as Redis or MongoDB",
    effect: "two-dimensional page walks are cheap only with huge pages on both sides; the host side alone: up to 20% \
        (RHEL 6)",
    evidence: Evidence::B,
    sources: &["k-thp", "rh-rhel6perf", "intel-thp"],
    fix: Fix {
        live: Some("in the guest: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        persistent: "in the guest: tuned, or transparent_hugepage=madvise",
        needs: &[Need::Live],
        undo: "memory grows; undo echo the old word",
    },
    check: Check::Inside(check),
};

fn check(subject: &Subject<'_>, inside: &Host) -> Outcome {
    let Some(enabled) = inside.system.transparent_hugepage.as_deref() else {
        return Outcome::unknown(format!("/sys/kernel/mm/transparent_hugepage/enabled in {}", subject.domain.name));
    };
    let never = enabled == "never";
    Outcome::one(never.then(|| Object::new("transparent huge pages of the guest", enabled, "madvise or always")))
}
