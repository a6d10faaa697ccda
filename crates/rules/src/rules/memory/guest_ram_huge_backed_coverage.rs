//! Running guests really got their huge pages.

use nearmetal_host::Residency;
use nearmetal_units::PageSize;

use crate::finding::{Object, Outcome, Which};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-ram-huge-backed-coverage",
    layer: Layer::Memory,
    title: "Running guests really got their huge pages",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/proc/PID/numa_maps", "domain <hugepages>"],
    good: ">= 95% of guest RAM huge-mapped for hugetlb (100%) ; >= 80% for THP",
    applies: "all",
    not_applies: "tiny guests",
    effect: "unquantified (threshold is chosen)",
    evidence: Evidence::C,
    sources: &["k-thp", "lv-dom"],
    fix: Fix {
        live: Some("echo 1 > /proc/sys/vm/compact_memory then wait for khugepaged"),
        persistent: "hugetlb pool",
        needs: &[Need::Live, Need::VmRestart],
        undo: "compaction CPU burst",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let (Which::Running, true) = (subject.which, subject.uses_hugetlb()) else { return Outcome::NotApplicable };
    let Some(process) = subject.process else { return Outcome::unknown("its QEMU process in /proc") };
    if process.residency_error.is_some() {
        return Outcome::unknown(format!("/proc/{}/numa_maps", process.pid));
    }
    let guest = || process.residency.iter().filter(|mapping| mapping.guest_memory);
    let bytes = |mapping: &Residency| {
        mapping.pages.iter().map(|(_, pages)| mapping.page_size.bytes().get().saturating_mul(*pages)).sum::<u64>()
    };
    let all: u64 = guest().map(bytes).sum();
    let huge: u64 = guest().filter(|mapping| mapping.page_size > PageSize::SMALL).map(bytes).sum();
    if all == 0 {
        return Outcome::NotApplicable;
    }
    let percent = u128::from(huge) * 100 / u128::from(all);
    let least = subject.context.settings.hugetlb_coverage_percent;
    let found = format!("{percent} % in huge pages, although the definition asks for them");
    Outcome::one(
        (percent < u128::from(least)).then(|| Object::new("memory in use", found, format!("at least {least} %"))),
    )
}
