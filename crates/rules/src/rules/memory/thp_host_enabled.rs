//! Transparent huge pages back guest RAM that is not on hugetlbfs.

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "thp-host-enabled",
    layer: Layer::Memory,
    title: "Transparent huge pages back guest RAM that is not on hugetlbfs",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/kernel/mm/transparent_hugepage/enabled"],
    good: "enabled always or madvise (QEMU madvises guest RAM); for memfd/shared guests shmem_enabled advise/within_size or use hugetlb",
    applies: "general and throughput classes",
    not_applies: "hosts where all guests are on hugetlbfs (never is acceptable; RT profile network-latency sets never)",
    effect: "Red Hat: up to 20% in virtual guests (RHEL 6 guide); Intel/ChromeOS VMs: about 3% faster, about 70% fewer EPT-violation exits; Firecracker THP: guest boot time -19% to -55%; SGI seed: 'better performance'",
    evidence: Evidence::A,
    sources: &["rh-rhel6perf", "intel-thp", "fc-thp", "paper-sgi-uv", "k-thp", "t-nl"],
    fix: Fix {
        live: Some("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        persistent: "transparent_hugepage=madvise or tuned [vm] transparent_hugepages",
        needs: &[Need::Live],
        undo: "compaction stalls, memory bloat; undo echo never",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    let small = context.domains.iter().filter_map(Domain::in_force).any(|facts| facts.hugepages.is_none());
    if !context.domains.is_empty() && !small {
        return Outcome::NotApplicable;
    }
    let Some(mode) = host.system.transparent_hugepage.as_deref() else {
        return Outcome::unknown("/sys/kernel/mm/transparent_hugepage/enabled");
    };
    let argument = context.kernel_parameter("transparent_hugepage");
    Outcome::one((mode == "never").then(|| {
        Object::new("transparent huge pages", "never", "madvise or always")
            .cured_by(Cure::kernel_file("/sys/kernel/mm/transparent_hugepage/enabled", "madvise"))
            .cured_by_all(argument.map(|_| Cure::kernel_argument("transparent_hugepage", "madvise")))
    }))
}
