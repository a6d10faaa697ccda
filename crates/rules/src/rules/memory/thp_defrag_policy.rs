//! THP defrag does not stall page faults on latency hosts.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::uses_hugetlb;

pub(crate) const RULE: Rule = Rule {
    id: "thp-defrag-policy",
    layer: Layer::Memory,
    title: "THP defrag does not stall page faults on latency hosts",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/kernel/mm/transparent_hugepage/defrag"],
    good: "general: madvise (default); VM hosts willing to pay at VM start: always/defer+madvise; latency: defer or never",
    applies: "all with THP on",
    not_applies: "hugetlb-only",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["k-thp"],
    fix: Fix {
        live: Some("echo defer+madvise > .../defrag"),
        persistent: "tmpfiles.d or tuned",
        needs: &[Need::Live],
        undo: "'always' delays VM start by direct compaction (kernel doc names VMs as the case where that is acceptable); undo echo madvise",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let Some(defrag) = host.system.transparent_hugepage_defrag.as_deref() else {
        return Outcome::unknown("/sys/kernel/mm/transparent_hugepage/defrag");
    };
    let off = host.system.transparent_hugepage.as_deref() == Some("never");
    let small = |domain: &Domain| domain.in_force().is_some_and(|facts| !uses_hugetlb(facts));
    let latency = context.domains.iter().any(|domain| domain.class == WorkloadClass::Latency && small(domain));
    let stalls = match defrag {
        "always" => !off,
        "madvise" => latency && !off,
        _ => false,
    };
    let (wanted, chosen) =
        if latency { ("defer or never", "defer") } else { ("madvise, defer or defer+madvise", "madvise") };
    Outcome::one(stalls.then(|| {
        Object::new("transparent huge pages' defrag", defrag, wanted)
            .cured_by(Cure::kernel_file("/sys/kernel/mm/transparent_hugepage/defrag", chosen))
    }))
}
