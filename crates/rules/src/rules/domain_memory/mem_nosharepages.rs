//! Performance guests are excluded from KSM.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "mem-nosharepages",
    layer: Layer::DomainMemory,
    title: "Performance guests are excluded from KSM",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &["domain <memoryBacking><nosharepages/>"],
    good: "merge off for throughput/latency classes and for side-channel-sensitive tenants",
    applies: "dedicated guests",
    not_applies: "density: sharing is the goal",
    effect: "unquantified (removes copy-on-write latency and THP splits)",
    evidence: Evidence::B,
    sources: &["lv-dom", "k-ksm", "lv-rt", "rh-rhel7thp"],
    fix: Fix {
        live: None,
        persistent: "<memoryBacking><nosharepages/></memoryBacking>",
        needs: &[Need::VmRestart],
        undo: "more RAM used; undo remove",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    // Pages of hugetlb pools are never merged.
    if subject.uses_hugetlb() {
        return Outcome::NotApplicable;
    }
    let shared = !subject.facts.memory_policy.no_share_pages;
    let cure = Cure::element("memoryBacking/nosharepages");
    Outcome::one(shared.then(|| {
        Object::new(
            "memory",
            "eligible for same-page \
        merging",
            "<nosharepages/>",
        )
        .cured_by(cure)
    }))
}
