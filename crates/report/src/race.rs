//! The words of a race: the order of its arms, what became of each, the error of the whole, and what to use.

use nearmetal_stats::{Fate, ShownRatio};

use crate::svg::{MatrixMark, MatrixRow};
use crate::text::{count, shown};
use crate::view::{AdviceKind, AdviceView, RaceArm, RaceReadBack, RaceView, RatioView};

impl RaceView {
    /// The arms: the winner, then by ratio, those without a figure last.
    pub fn ordered(&self) -> Vec<usize> {
        let standing = |number: usize| match self.arms[number].to_reference {
            _ if self.winner == Some(number) => f64::INFINITY,
            _ if number == self.reference && self.was_raced() => 1.0,
            Some(estimate) => estimate.ratio,
            None => f64::NEG_INFINITY,
        };
        let mut arms: Vec<usize> = (0..self.arms.len()).collect();
        arms.sort_by(|one, other| standing(*other).total_cmp(&standing(*one)));
        arms
    }

    /// Whether any way was measured, and not only read back.
    pub fn was_raced(&self) -> bool {
        self.arms.iter().any(|arm| arm.rounds > 0 || arm.median.is_some() || arm.to_reference.is_some())
    }

    /// How many ways took effect.
    pub fn took_effect(&self) -> usize {
        self.arms.iter().filter(|arm| matches!(arm.read_back, RaceReadBack::Shown { .. })).count()
    }

    /// The ways that did not take effect, in one sentence; `None` if all did.
    pub(crate) fn lost(&self) -> Option<String> {
        let lost = self.arms.iter().filter(|arm| matches!(arm.read_back, RaceReadBack::NotShown { .. }));
        let names: Vec<&str> = lost.map(|arm| arm.title.as_str()).collect();
        let have = if names.len() == 1 { "has" } else { "have" };
        let of = format!("{} of {} did not take effect", names.len(), count(self.arms.len(), "way"));
        (!names.is_empty()).then(|| format!("{of} and {have} no figures: {}", names.join("; ")))
    }

    /// `*` for the winner.
    pub fn star(&self, number: usize) -> char {
        if self.winner == Some(number) { '*' } else { ' ' }
    }

    /// An arm's ratio to the reference, in words.
    pub fn figure(&self, number: usize) -> String {
        match self.arms[number].to_reference {
            _ if number == self.reference && self.was_raced() => "1".to_owned(),
            Some(ratio) => ratio.to_string(),
            None => "not measured".to_owned(),
        }
    }

    /// What became of an arm.
    pub fn note(&self, number: usize) -> String {
        let fate = self.fate(number);
        match self.arms[number].peer_bound {
            Some(true) if fate.is_empty() => "peer-bound".to_owned(),
            Some(true) => format!("peer-bound; {fate}"),
            _ => fate,
        }
    }

    fn fate(&self, number: usize) -> String {
        let arm = &self.arms[number];
        let rounds = |look: usize| self.looks.get(look).copied().unwrap_or(0);
        if let RaceReadBack::NotShown { why } = &arm.read_back {
            return format!("did not take effect: {why}");
        }
        if let Some(why) = &arm.cannot_win {
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
    pub fn statement(&self) -> String {
        let percent = self.error * 100.0;
        let others =
            || self.arms.iter().enumerate().filter(|(number, arm)| Some(*number) != self.winner && arm.may_win());
        let failed: Vec<&str> =
            others().filter(|(_, arm)| arm.fate == Some(Fate::Withdrawn)).map(|(_, arm)| arm.title.as_str()).collect();
        let but = match failed.len() {
            0 => String::new(),
            _ => format!("; runs failed, so this says nothing about {}", failed.join(" or ")),
        };
        match self.slack {
            Some(slack) if slack <= 1.0 && !failed.is_empty() && failed.len() == others().count() => {
                format!("the race: the winner is the only arm that could win and was measured{but}")
            }
            Some(slack) if slack <= 1.0 => {
                let other = if failed.is_empty() {
                    "every other arm that could win"
                } else {
                    "every other arm that was measured and could win"
                };
                format!("the race: {other} was shown worse (error {percent} %){but}")
            }
            Some(slack) => format!(
                "the race: no arm that could win is better than the winner by more than {:.0} % (error {percent} %){but}",
                (slack - 1.0) * 100.0
            ),
            None => format!("the race: too few rounds to say how much better another arm may be{but}"),
        }
    }

    /// The chart's rows, best first.
    pub fn rows(&self) -> Vec<MatrixRow> {
        let row = |number: usize| {
            let arm: &RaceArm = &self.arms[number];
            MatrixRow {
                name: arm.title.clone(),
                ratio: if number == self.reference { Some(1.0) } else { arm.to_reference.map(|ratio| ratio.ratio) },
                interval: arm.to_reference.map(|ratio| (ratio.interval.low, ratio.interval.high)),
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

    /// What the ratios are of, within a sentence: `IOPS`, `transactions a second`.
    pub(crate) fn quantity_words(&self) -> String {
        self.quantity.to_lowercase().replace("iops", "IOPS")
    }

    /// Words of the chart's axis.
    pub(crate) fn axis(&self) -> String {
        format!("{} as a ratio to {}", self.quantity, self.reference_name)
    }

    /// What to use, as lines: the advice, then what it rests on and takes, each further line indented by two.
    pub fn advice_text(&self) -> String {
        let Some(advice) = &self.advice else { return String::new() };
        let mut text = format!("{}\n", self.recommendation(advice));
        if let Some(because) = self.because(advice) {
            text.push_str(&format!("  because {because}\n"));
        }
        if let Some(definition) = &advice.definition {
            text.push_str(&format!("  as libvirt writes it: {definition}\n"));
        }
        text.extend(advice.further.iter().map(|line| format!("  {line}\n")));
        text
    }

    /// The advice in one line.
    pub(crate) fn recommendation(&self, advice: &AdviceView) -> String {
        let (thing, reference) = (&self.thing, &self.reference_name);
        let arm = advice.arm.as_deref().unwrap_or(reference);
        match (advice.kind, &advice.to_reference) {
            (AdviceKind::Use, _) | (AdviceKind::Reference, _) => format!("use: {arm}"),
            (AdviceKind::NoneFaster, Some(ratio)) => format!(
                "leave the {thing} as it is: the best arm, {arm}, did {ratio} of {reference} in {} fresh pairs",
                ratio.n
            ),
            (AdviceKind::NoneFaster, None) => format!("leave the {thing} as it is: no arm was shown faster"),
            (AdviceKind::Default, _) => format!("leave the {thing} as it is: {reference} was the best"),
            (AdviceKind::Unknown, _) => "no advice: the race has no winner that was measured again".to_owned(),
        }
    }

    /// Why to use it.
    pub(crate) fn because(&self, advice: &AdviceView) -> Option<String> {
        match (advice.kind, &advice.to_reference) {
            (AdviceKind::Use, Some(ratio)) => {
                let bare = advice.to_bare.map_or_else(String::new, |bare| format!(", {bare} of bare metal"));
                Some(format!("it did {ratio} of {}{bare} in {} fresh pairs", self.reference_name, ratio.n))
            }
            (AdviceKind::Reference, _) => {
                Some("no other arm that took effect was shown better, and libvirt's default took none".to_owned())
            }
            _ => None,
        }
    }

    /// The race as the first sentence of a page says it, without the words of the lab.
    pub(crate) fn verdict(&self, guest: &str) -> Vec<(String, bool)> {
        let plain = |text: String| vec![(text, false)];
        let Some(advice) = self.advice.as_ref().filter(|_| self.was_raced()) else {
            let ways = count(self.arms.len(), "way");
            let words = format!("{} of {ways}", self.took_effect());
            return vec![
                (format!("{guest}: "), false),
                (words, true),
                (" took effect; nothing was raced".to_owned(), false),
            ];
        };
        let (reference, arm) = (&self.reference_name, advice.arm.as_deref().unwrap_or(&self.reference_name));
        match (advice.kind, &advice.to_reference) {
            (AdviceKind::Use, Some(ratio)) => {
                let ShownRatio { ratio: figure, .. } = ratio.shown();
                vec![(format!("{guest}: {arm} does "), false), (figure, true), (format!(" of {reference}"), false)]
            }
            // Of a document of an earlier version, which kept no ratio of a plan that is not the winner.
            (AdviceKind::Use, None) => plain(format!("{guest}: use {arm}")),
            (AdviceKind::NoneFaster, Some(ratio)) => {
                let ShownRatio { ratio: figure, .. } = ratio.shown();
                vec![
                    (format!("{guest}: no way was shown faster than {reference}; the best, {arm}, does "), false),
                    (figure, true),
                    (" of it".to_owned(), false),
                ]
            }
            (AdviceKind::Default, _) => plain(format!("{guest}: no way beat {reference}")),
            (AdviceKind::Reference, _) => {
                plain(format!("{guest}: no way beat {arm}; libvirt's default took no effect"))
            }
            _ => plain(format!("{guest}: the race has no winner that was measured again")),
        }
    }
}

impl RaceArm {
    /// Whether it could have won: it took effect, and its kind is one that may.
    fn may_win(&self) -> bool {
        self.cannot_win.is_none() && matches!(self.read_back, RaceReadBack::Shown { .. })
    }
}

impl RatioView {
    /// As every report writes it.
    pub(crate) fn shown(&self) -> ShownRatio {
        shown(Some(self.ratio), Some(self.interval))
    }
}

impl std::fmt::Display for RatioView {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.shown().fmt(formatter)
    }
}
