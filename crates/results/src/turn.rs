//! One run of a race as the documents of matrices keep it: arms by their place in the list.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_load::Metric;
use nearmetal_stats::{Pair, Sample};
use serde::{Deserialize, Serialize};

use crate::results::{Outcome, Run};

/// What decides a disk's race.
pub(crate) const METRIC: &str = "iops";

/// One run of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Round, from 0: its runs belong together.
    pub round: u32,
    /// Position inside the round, drawn at random.
    pub position: u32,
    /// Number of the arm.
    pub arm: usize,
    /// Seed of the workload: one per round.
    pub seed: u64,
    /// RFC 3339, UTC.
    pub started: String,
    /// Wall seconds, flushing included.
    pub seconds: f64,
    /// What came of it.
    pub outcome: Outcome,
}

impl Turn {
    /// The value that decides a disk's race, if it has one.
    pub fn value(&self) -> Option<f64> {
        self.value_of(METRIC)
    }

    /// What it measured; nothing where it failed.
    pub(crate) fn metrics(&self) -> &[Metric] {
        match &self.outcome {
            Outcome::Measured { metrics, .. } => metrics,
            Outcome::Failed { .. } => &[],
        }
    }

    /// The value of a metric, if it has one.
    pub(crate) fn value_of(&self, metric: &str) -> Option<f64> {
        self.metrics().iter().find(|found| found.name == metric).map(|found| found.value)
    }

    /// The same run, with its arm by place.
    pub fn whole(run: Run, arm: usize) -> Self {
        let Run { round, position, seed, started, seconds, outcome, .. } = run;
        Self { round, position, arm, seed, started, seconds, outcome }
    }

    /// One more load of the same boot; a failure of one is a failure of all.
    pub fn join(&mut self, more: Self) {
        self.seconds += more.seconds;
        match (&mut self.outcome, more.outcome) {
            (Outcome::Measured { metrics, notes }, Outcome::Measured { metrics: others, notes: words }) => {
                metrics.extend(others);
                notes.extend(words);
            }
            (own, failed @ Outcome::Failed { .. }) => *own = failed,
            (Outcome::Failed { .. }, _) => {}
        }
    }

    /// The same run, with its arm by place. Of its costs only the sum is kept: there are hundreds of such runs.
    pub fn of(run: Run, arm: usize) -> Self {
        let mut turn = Self::whole(run, arm);
        if let Outcome::Measured { metrics, .. } = &mut turn.outcome {
            metrics.retain(|metric: &Metric| !metric.name.starts_with(nearmetal_load::PREFIX));
        }
        turn
    }

    /// Values of two arms from the same rounds: the last of each, since a turn that failed may have been taken again.
    pub fn pairs(turns: &[Self], metric: &str, subject: usize, reference: usize) -> Vec<Pair> {
        let of = |arm: usize, round: u32| {
            let of = turns.iter().rev().filter(|turn| turn.arm == arm && turn.round == round);
            of.filter_map(|turn| turn.value_of(metric)).next()
        };
        let rounds: BTreeSet<u32> = turns.iter().filter(|turn| turn.arm == subject).map(|turn| turn.round).collect();
        rounds
            .into_iter()
            .filter_map(|round| Some(Pair { subject: of(subject, round)?, reference: of(reference, round)? }))
            .collect()
    }

    /// Median of an arm's values; `None` if it has none.
    pub fn median(turns: &[Self], metric: &str, arm: usize) -> Option<f64> {
        let values = turns.iter().filter(|turn| turn.arm == arm).filter_map(|turn| turn.value_of(metric)).collect();
        Sample::new(values).ok().map(|sample| sample.median())
    }

    /// Medians of all metrics of an arm that `is_kept` keeps, by name.
    pub(crate) fn medians(turns: &[Self], arm: usize, is_kept: impl Fn(&str) -> bool) -> BTreeMap<String, f64> {
        let names =
            turns.iter().filter(|turn| turn.arm == arm).flat_map(Self::metrics).map(|metric| metric.name.as_str());
        let names: BTreeSet<&str> = names.filter(|name| is_kept(name)).collect();
        names.into_iter().filter_map(|name| Some((name.to_owned(), Self::median(turns, name, arm)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_load::Unit;

    use super::*;

    #[test]
    fn a_turn_that_was_taken_again_is_the_pair_of_its_round() {
        let turn = |round, arm, value: Option<f64>| Turn {
            round,
            position: 0,
            arm,
            seed: 1,
            started: String::new(),
            seconds: 1.0,
            outcome: match value {
                Some(value) => Outcome::Measured {
                    metrics: Metric::new(METRIC, Unit::Iops, value).into_iter().collect(),
                    notes: vec![],
                },
                None => Outcome::Failed { why: "a neighbour".into() },
            },
        };
        let turns = [
            turn(0, 0, None),
            turn(0, 0, Some(5.0)),
            turn(0, 1, Some(4.0)),
            turn(1, 0, Some(6.0)),
            turn(1, 1, None),
            turn(1, 1, None),
        ];
        assert_eq!(Turn::pairs(&turns, METRIC, 0, 1), [Pair { subject: 5.0, reference: 4.0 }]);
    }
}
