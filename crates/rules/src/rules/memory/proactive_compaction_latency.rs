//! Proactive compaction is off on latency hosts.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::uses_hugetlb;

pub(crate) const RULE: Rule = Rule {
    id: "proactive-compaction-latency",
    layer: Layer::Memory,
    title: "Proactive compaction is off on latency hosts",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/proc/sys/vm/compaction_proactiveness",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "domain <hugepages>",
    ],
    good: "0 for latency with hugetlb; default 20 otherwise",
    applies: "RT/latency",
    not_applies: "THP-dependent hosts benefit from default",
    effect: "unquantified (doc: latency spikes possible)",
    evidence: Evidence::B,
    sources: &["k-sysctl"],
    fix: Fix {
        live: Some("sysctl vm.compaction_proactiveness=0"),
        persistent: "/etc/sysctl.d",
        needs: &[Need::Live],
        undo: "fewer THP over time; undo 20",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    const PATH: &str = "/proc/sys/vm/compaction_proactiveness";
    let Some(host) = context.host else { return Outcome::no_host() };

    if !context.domains.iter().any(|domain| domain.class == WorkloadClass::Latency) {
        return Outcome::NotApplicable;
    }
    let Some(proactiveness) = host.tuning.compaction_proactiveness else { return Outcome::unknown(PATH) };
    // Compaction makes the huge pages that guests outside hugetlb pools live on.
    let transparent = host.system.transparent_hugepage.as_deref() != Some("never");
    let mut in_force = context.domains.iter().filter_map(Domain::in_force);
    let needed = transparent && in_force.any(|facts| !uses_hugetlb(facts));
    Outcome::one((proactiveness > 0 && !needed).then(|| {
        let wanted = "0: every guest has hugetlb pages, and moving pages stalls their users";
        Object::new("compaction_proactiveness", proactiveness.to_string(), wanted)
            .cured_by(Cure::kernel_file(PATH, "0"))
    }))
}
