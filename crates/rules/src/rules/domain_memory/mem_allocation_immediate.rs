//! Guest memory is preallocated (with threads) when determinism matters.

use nearmetal_place::WorkloadClass;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "mem-allocation-immediate",
    layer: Layer::DomainMemory,
    title: "Guest memory is preallocated (with threads) when determinism matters",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Latency],
    reads: &["domain <memoryBacking><allocation mode='immediate' threads>"],
    good: "immediate for RT/latency/hugetlb guests; threads >= 4 for >= 64 GiB (libvirt >= 8.2)",
    applies: "latency classes",
    not_applies: "density (defeats overcommit)",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "q-help"],
    fix: Fix {
        live: None,
        persistent: "<allocation mode='immediate' threads='8'/>",
        needs: &[Need::VmRestart],
        undo: "slower start; undo ondemand",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let policy = &subject.facts.memory_policy;
    // With hugepages libvirt lets QEMU allocate at the start unless the definition says otherwise. What is locked is
    // touched when it is mapped.
    let immediate = match policy.allocation.as_deref() {
        _ if policy.locked => true,
        Some(mode) => mode == "immediate",
        None => subject.uses_hugetlb(),
    };
    let cure = Cure::attribute("memoryBacking/allocation", "mode", "immediate");
    let object = || Object::new("memory", "allocated on first touch", "<allocation mode='immediate'/>");
    Outcome::one((!immediate).then(|| object().cured_by(cure)))
}
