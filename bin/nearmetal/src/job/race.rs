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

pub(super) fn ratio_text(estimate: &RatioEstimate) -> String {
    let interval = estimate.interval();
    format!("{:.2}x ({:.2} to {:.2})", estimate.ratio, interval.low, interval.high)
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
        ratio_text(estimate),
        estimate.n,
        ground.device,
        ground.kernel
    )
}

/// An arm of a race, as far as its words go.
pub(super) trait Arm {
    fn title(&self) -> String;
    fn effect(&self) -> &Effect;
    fn cannot_win(&self) -> Option<&str>;
    fn fate(&self) -> Option<Fate>;
    fn to_default(&self) -> Option<&RatioEstimate>;
    /// What is said before its note; `None` for nothing.
    fn mark(&self) -> Option<&'static str>;
}

/// Both kinds of arms keep what is asked of them under the same names.
macro_rules! arm {
    ($kind:ty, $mark:expr) => {
        impl Arm for $kind {
            fn title(&self) -> String {
                self.path.title()
            }
            fn effect(&self) -> &Effect {
                &self.effect
            }
            fn cannot_win(&self) -> Option<&str> {
                self.cannot_win.as_deref()
            }
            fn fate(&self) -> Option<Fate> {
                self.fate
            }
            fn to_default(&self) -> Option<&RatioEstimate> {
                self.to_default.as_ref()
            }
            fn mark(&self) -> Option<&'static str> {
                let mark: fn(&$kind) -> Option<&'static str> = $mark;
                mark(self)
            }
        }
    };
}

arm!(ArmResult, |_| None);
arm!(NetArmResult, |arm| (arm.peer_bound == Some(true)).then_some("peer-bound"));

/// A race that is over.
pub(super) struct Race<'a, A> {
    arms: &'a [A],
    winner: Option<usize>,
    /// Number of the arm that all others are compared with.
    reference: usize,
    /// Rounds before each look.
    looks: &'a [u32],
    error: f64,
    slack: Option<f64>,
}

impl<'a> From<&'a MatrixResults> for Race<'a, ArmResult> {
    fn from(of: &'a MatrixResults) -> Self {
        let (winner, reference) = (of.winner, 0);
        Self { arms: &of.arms, winner, reference, looks: &of.looks, error: of.error, slack: of.slack }
    }
}

impl<'a> From<&'a NetMatrixResults> for Race<'a, NetArmResult> {
    fn from(of: &'a NetMatrixResults) -> Self {
        let (winner, reference) = (of.winner, of.reference);
        Self { arms: &of.arms, winner, reference, looks: &of.looks, error: of.error, slack: of.slack }
    }
}

impl<'a, A: Arm> Race<'a, A> {
    /// Arms with their numbers: the winner, then by ratio, those without a figure last.
    pub(super) fn ordered(&self) -> Vec<(usize, &'a A)> {
        let standing = |number: usize, arm: &A| match (number, arm.to_default()) {
            _ if self.winner == Some(number) => f64::INFINITY,
            (number, _) if number == self.reference => 1.0,
            (_, Some(estimate)) => estimate.ratio,
            _ => f64::NEG_INFINITY,
        };
        let mut arms: Vec<(usize, &A)> = self.arms.iter().enumerate().collect();
        arms.sort_by(|one, other| standing(other.0, other.1).total_cmp(&standing(one.0, one.1)));
        arms
    }

    /// `*` for the winner.
    pub(super) fn star(&self, number: usize) -> char {
        if self.winner == Some(number) { '*' } else { ' ' }
    }

    /// The arm's ratio to the reference, in words.
    pub(super) fn figure(&self, number: usize, arm: &A) -> String {
        match (arm.to_default(), number) {
            (_, number) if number == self.reference => "1".to_owned(),
            (Some(estimate), _) => ratio_text(estimate),
            (None, _) => "not measured".to_owned(),
        }
    }

    /// What became of an arm.
    pub(super) fn note(&self, number: usize, arm: &A) -> String {
        let fate = self.fate(number, arm);
        match arm.mark() {
            Some(mark) if fate.is_empty() => mark.to_owned(),
            Some(mark) => format!("{mark}; {fate}"),
            None => fate,
        }
    }

    fn fate(&self, number: usize, arm: &A) -> String {
        let rounds = |look: usize| self.looks.get(look).copied().unwrap_or(0);
        if let Effect::NotShown { why } = arm.effect() {
            return format!("did not take effect: {why}");
        }
        if let Some(why) = arm.cannot_win() {
            return format!("cannot win: {why}");
        }
        match arm.fate() {
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
        let row = |(number, arm): (usize, &A)| MatrixRow {
            name: arm.title(),
            ratio: if number == self.reference { Some(1.0) } else { arm.to_default().map(|estimate| estimate.ratio) },
            interval: arm.to_default().map(|estimate| (estimate.interval().low, estimate.interval().high)),
            note: self.note(number, arm),
            mark: match number {
                _ if self.winner == Some(number) => MatrixMark::Winner,
                _ if number == self.reference => MatrixMark::Default,
                _ => MatrixMark::Other,
            },
        };
        self.ordered().into_iter().map(row).collect()
    }
}
