//! VFIO guests have hugepages.

use nearmetal_place::WorkloadClass;
use nearmetal_units::Bytes;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "vfio-guest-hugepage-backed",
    layer: Layer::Pci,
    title: "VFIO guests have hugepages",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <hostdev>, <hugepages>"],
    good: "hugetlb (2M/1G) or >= 95% THP coverage: fewer pins and IOTLB entries",
    applies: "all VFIO guests, most of all large RAM",
    not_applies: "small test guests",
    effect: "Cloud Hypervisor issue 754: VFIO + virtiofs test job 5m35s -> 2m05s with huge pages (not a clean single-factor test); otherwise unquantified",
    evidence: Evidence::A,
    sources: &["ch-754", "rh-1gib"],
    fix: Fix {
        live: None,
        persistent: "<memoryBacking><hugepages/></memoryBacking>",
        needs: &[Need::VmRestart],
        undo: "needs a reserved pool; undo remove",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    // Page tables of less than this fit the caches of any card and processor: a test guest.
    const SMALL: Bytes = Bytes::from_mib(1024);
    if subject.facts.hostdevs.is_empty() || subject.facts.memory < SMALL {
        return Outcome::NotApplicable;
    }
    let thp = subject.context.host.and_then(|host| host.system.transparent_hugepage.as_deref());
    let small = !subject.uses_hugetlb();
    let found =
        format!("{} without hugetlb pages, transparent huge pages {}", subject.facts.memory, thp.unwrap_or("unknown"));
    Outcome::one(small.then(|| Object::new("memory", found, "<hugepages>")))
}
