//! Memory backing uses hugetlb for dedicated guests, THP elsewhere.

use nearmetal_place::WorkloadClass;
use nearmetal_units::Bytes;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "mem-hugepages",
    layer: Layer::DomainMemory,
    title: "Memory backing uses hugetlb for dedicated guests, THP elsewhere",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency],
    reads: &["domain <memoryBacking><hugepages><page size unit nodeset>"],
    good: "dedicated/NFV/DPDK/VFIO: hugetlb, page size as in hugetlb-1g-for-large-guests; general: THP always|madvise (coverage in guest-ram-huge-backed-coverage)",
    applies: "large-memory, NFV",
    not_applies: "density, KSM, ballooning (hugetlb cannot be reclaimed)",
    effect: "RHEL 6 guide: THP up to 20%; 1 GiB result exists but could not be read; the KVM tuning talk states 512x fewer mappings",
    evidence: Evidence::A,
    sources: &["lv-dom", "k-huge", "rh-1gib", "rh-rhel6perf", "talk-kvm-tuning", "nova-huge"],
    fix: Fix {
        live: None,
        persistent: "<memoryBacking><hugepages><page size='1' unit='G'/></hugepages></memoryBacking>",
        needs: &[Need::VmRestart],
        undo: "reserved RAM is lost to others; start fails if the pool is short; undo remove",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let large = Bytes::from_mib(subject.context.settings.large_memory_gib << 10);
    let wanted = subject.class == WorkloadClass::Latency || subject.facts.memory >= large;
    let missing = wanted && !subject.uses_hugetlb();
    Outcome::one(
        missing
            .then(|| Object::new("memory", format!("{} without hugetlb pages", subject.facts.memory), "<hugepages>")),
    )
}
