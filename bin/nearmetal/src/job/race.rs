//! What the two matrices say alike: the list before a race, the order of its arms, what became of each, and the error of
//! the whole.

use nearmetal_measure::{
    ArmResult, Effect, Environment, GroundKey, LeftOut, MatrixResults, NetArmResult, NetMatrixResults,
};
use nearmetal_report::{MatrixMark, MatrixRow};
use nearmetal_stats::{Fate, RatioEstimate};

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

/// An arm of a race, as far as its words go.
struct Arm<'a> {
    title: String,
    effect: &'a Effect,
    cannot_win: Option<&'a str>,
    fate: Option<Fate>,
    to_default: Option<&'a RatioEstimate>,
    /// What is said before its note.
    mark: Option<&'static str>,
}

/// A race that is over. Its arms are spoken of by their numbers.
pub(super) struct Race<'a> {
    arms: Vec<Arm<'a>>,
    winner: Option<usize>,
    /// Number of the arm that all others are compared with.
    reference: usize,
    /// Rounds before each look.
    looks: &'a [u32],
    error: f64,
    slack: Option<f64>,
}

impl<'a> From<&'a MatrixResults> for Race<'a> {
    fn from(of: &'a MatrixResults) -> Self {
        let arm = |arm: &'a ArmResult| Arm {
            title: arm.path.title(),
            effect: &arm.effect,
            cannot_win: arm.cannot_win.as_deref(),
            fate: arm.fate,
            to_default: arm.to_default.as_ref(),
            mark: None,
        };
        let arms = of.arms.iter().map(arm).collect();
        Self { arms, winner: of.winner, reference: 0, looks: &of.looks, error: of.error, slack: of.slack }
    }
}

impl<'a> From<&'a NetMatrixResults> for Race<'a> {
    fn from(of: &'a NetMatrixResults) -> Self {
        let arm = |arm: &'a NetArmResult| Arm {
            title: arm.path.title(),
            effect: &arm.effect,
            cannot_win: arm.cannot_win.as_deref(),
            fate: arm.fate,
            to_default: arm.to_default.as_ref(),
            mark: (arm.peer_bound == Some(true)).then_some("peer-bound"),
        };
        let arms = of.arms.iter().map(arm).collect();
        Self { arms, winner: of.winner, reference: of.reference, looks: &of.looks, error: of.error, slack: of.slack }
    }
}

impl Race<'_> {
    /// The arms: the winner, then by ratio, those without a figure last.
    pub(super) fn ordered(&self) -> Vec<usize> {
        let standing = |number: usize| match self.arms[number].to_default {
            _ if self.winner == Some(number) => f64::INFINITY,
            _ if number == self.reference => 1.0,
            Some(estimate) => estimate.ratio,
            None => f64::NEG_INFINITY,
        };
        let mut arms: Vec<usize> = (0..self.arms.len()).collect();
        arms.sort_by(|one, other| standing(*other).total_cmp(&standing(*one)));
        arms
    }

    /// `*` for the winner.
    pub(super) fn star(&self, number: usize) -> char {
        if self.winner == Some(number) { '*' } else { ' ' }
    }

    /// An arm's ratio to the reference, in words.
    pub(super) fn figure(&self, number: usize) -> String {
        match self.arms[number].to_default {
            _ if number == self.reference => "1".to_owned(),
            Some(estimate) => estimate.to_string(),
            None => "not measured".to_owned(),
        }
    }

    /// What became of an arm.
    pub(super) fn note(&self, number: usize) -> String {
        let fate = self.fate(number);
        match self.arms[number].mark {
            Some(mark) if fate.is_empty() => mark.to_owned(),
            Some(mark) => format!("{mark}; {fate}"),
            None => fate,
        }
    }

    fn fate(&self, number: usize) -> String {
        let arm = &self.arms[number];
        let rounds = |look: usize| self.looks.get(look).copied().unwrap_or(0);
        if let Effect::NotShown { why } = arm.effect {
            return format!("did not take effect: {why}");
        }
        if let Some(why) = arm.cannot_win {
            return format!("cannot win: {why}");
        }
        match arm.fate {
            _ if self.winner == Some(number) => "winner".to_owned(),
            Some(Fate::ShownWorse { look, .. }) => format!("shown worse after {} rounds", rounds(look)),
            Some(Fate::Cut { look }) => format!("cut for time after {} rounds, not shown worse", rounds(look)),
            Some(Fate::Withdrawn) => "withdrawn: its runs failed".to_owned(),
            Some(Fate::Racing) => "not told apart from the winner".to_owned(),
            None => String::new(),
        }
    }

    /// What may be said of the race, with its error.
    pub(super) fn statement(&self) -> String {
        let percent = self.error * 100.0;
        match self.slack {
            Some(slack) if slack <= 1.0 => {
                format!("the race: every other arm that could win was shown worse (error {percent} %)\n")
            }
            Some(slack) => format!(
                "the race: no arm that could win is better than the winner by more than {:.0} % (error {percent} %)\n",
                (slack - 1.0) * 100.0
            ),
            None => "the race: too few rounds to say how much better another arm may be\n".to_owned(),
        }
    }

    /// The chart's rows, best first.
    pub(super) fn rows(&self) -> Vec<MatrixRow> {
        let row = |number: usize| {
            let arm = &self.arms[number];
            MatrixRow {
                name: arm.title.clone(),
                ratio: if number == self.reference { Some(1.0) } else { arm.to_default.map(|estimate| estimate.ratio) },
                interval: arm.to_default.map(|estimate| (estimate.interval().low, estimate.interval().high)),
                note: self.note(number),
                mark: match number {
                    _ if self.winner == Some(number) => MatrixMark::Winner,
                    _ if number == self.reference => MatrixMark::Default,
                    _ => MatrixMark::Other,
                },
            }
        };
        self.ordered().into_iter().map(row).collect()
    }
}
