//! What the two matrices say alike: the list before a race, what was left out, where a winner holds, and the parts of their
//! views. What became of each arm is put into words by `nearmetal_report::view::RaceView`.

use nearmetal_report::view::{AdviceKind, AdviceView, LeftOutRow, RaceReadBack};
use nearmetal_results::{Advice, Effect, Environment, GroundKey, LeftOut};
use nearmetal_stats::RatioEstimate;

/// The arms that would be measured, as title and id, and how long that takes, in seconds.
pub(super) fn list_text(arms: &[(String, String)], left_out: &[LeftOut], least: u32, budget: u32) -> String {
    let mut text = format!("{} arms:\n", arms.len());
    for (title, id) in arms {
        text.push_str(&format!("  {title:58} {id}\n"));
    }
    text.push_str(&left_out_text(left_out));
    text.push_str(&format!("takes at least {least} s"));
    text.push_str(&if budget < least {
        format!("; the budget is {budget} s: raise --budget, or leave arms out (--without WORD)\n")
    } else {
        format!("; the budget is {budget} s\n")
    });
    text
}

pub(super) fn left_out_text(left_out: &[LeftOut]) -> String {
    let lines: String = left_out.iter().map(|left| format!("  {:58} {}\n", left.what, left.why)).collect();
    if lines.is_empty() { lines } else { format!("not measured:\n{lines}") }
}

/// When a winner was measured and where, by how much it beat what, and on what that holds.
pub(super) fn measured_text(
    (created, guest): (&str, &str),
    (estimate, than): (&RatioEstimate, &str),
    (device, ground): (&str, &GroundKey),
    environment: &Environment,
) -> String {
    let lab = match environment {
        Environment::Lab { .. } => " (lab: emulated time)",
        Environment::Silicon => "",
    };
    format!(
        "measured {created} in {guest}: {} of {than} in {} fresh pairs, on the same {device} ({}) and kernel ({}){lab}",
        estimate, estimate.n, ground.device, ground.kernel
    )
}

/// What was read back of an arm.
pub(super) fn read_back(effect: &Effect) -> RaceReadBack {
    match effect {
        Effect::Shown { evidence } => RaceReadBack::Shown { evidence: evidence.clone() },
        Effect::NotShown { why } => RaceReadBack::NotShown { why: why.clone() },
    }
}

/// The ways that were not measured.
pub(super) fn left_out_rows(left_out: &[LeftOut]) -> Vec<LeftOutRow> {
    left_out.iter().map(|left| LeftOutRow { what: left.what.clone(), why: left.why.clone() }).collect()
}

/// The advice without what only its kind of path knows; `title` names an arm.
pub(super) fn advice_of<A>(advice: &Advice<'_, A>, title: impl Fn(&A) -> String) -> AdviceView {
    let (kind, arm) = match advice {
        Advice::Use(arm, estimate) => (AdviceKind::Use, Some((arm, estimate))),
        Advice::NoneFaster(arm, estimate) => (AdviceKind::NoneFaster, Some((arm, estimate))),
        Advice::Default => (AdviceKind::Default, None),
        Advice::Unknown => (AdviceKind::Unknown, None),
    };
    AdviceView {
        kind,
        arm: arm.map(|(arm, _)| title(arm)),
        to_reference: arm.map(|(_, estimate)| (*estimate).into()),
        to_bare: None,
        definition: None,
        further: Vec::new(),
    }
}
