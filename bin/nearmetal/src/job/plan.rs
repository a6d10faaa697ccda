//! Decisions, pools and the difference of the definitions.

use nearmetal_change::{DomainChange, PlanFile};
use nearmetal_domain::DiffKind as Found;
use nearmetal_place::Placement;
use nearmetal_report::view::{DiffKind, DiffLine, PlanView, PoolRow, ReasonRow};

use super::secrets;

/// What was decided for one guest, and why.
pub(crate) fn view(plan: &PlanFile, placement: &Placement) -> PlanView {
    let reasons = placement.reasons.iter().map(|reason| ReasonRow {
        subject: reason.subject.clone(),
        choice: reason.choice.clone(),
        because: reason.because.clone(),
        source: reason.source.clone(),
    });
    let own = plan.domains.iter().find(|change| change.name == placement.guest);
    let left = own.into_iter().flat_map(|change| &change.left).chain(&plan.left).map(|left| ReasonRow {
        subject: left.what.clone(),
        choice: format!("left: {}", left.found),
        because: format!("rule {} wants {}; {}", left.rule, left.wanted, left.why),
        source: None,
    });
    let pools = plan.plan.pools.iter().map(|pool| PoolRow {
        node: pool.node,
        size: pool.size,
        before: pool.before,
        after: pool.after,
    });
    PlanView { reasons: reasons.chain(left).collect(), pools: pools.collect() }
}

/// The difference of the definitions, passwords masked.
pub(crate) fn difference(change: &DomainChange) -> Vec<DiffLine> {
    nearmetal_domain::diff(&secrets::mask(&change.xml_before), &secrets::mask(&change.xml_after))
        .into_iter()
        .map(|line| {
            let kind = match line.kind {
                Found::Place => DiffKind::Gap,
                Found::Context => DiffKind::Context,
                Found::Removed => DiffKind::Removed,
                Found::Added => DiffKind::Added,
            };
            DiffLine { kind, text: line.text }
        })
        .collect()
}
