//! When an arm has as many tiles as its machine holds: worked out of the runs.

use std::cmp::Ordering;

use crate::results::{Purpose, Run, last_tries};

/// What one sample says of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// What all tiles did together; more is better.
    pub score: f64,
    /// Whether every guest answered soon enough.
    pub is_kept: bool,
}

/// Why an arm has no more tiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Full {
    /// Quality of service failed in more than half of the samples.
    Quality {
        /// Samples in which it failed.
        failed: usize,
        /// Samples with figures.
        of: usize,
    },
    /// The score did not rise.
    Score {
        /// Median with one tile fewer.
        before: f64,
        /// Median with these.
        now: f64,
    },
    /// No sample gave figures.
    NoFigures,
    /// There are no more.
    NoMoreTiles,
}

/// The median; `None` of nothing.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some((values[last / 2] + values[last.div_ceil(2)]) / 2.0)
}

/// Whether an arm is full, and with how many tiles: the first number of them at which one of the reasons holds.
pub fn tiles_held(
    runs: &[Run],
    arm: &str,
    each: usize,
    tiles: usize,
    look: &dyn Fn(&Run) -> Option<Look>,
) -> Option<(usize, Full)> {
    let mut before = None;
    for number in 1..=tiles {
        let of = |run: &&Run| run.purpose == Purpose::Fill && run.arm == arm && run.count == number * each;
        let of: Vec<&Run> = runs.iter().filter(of).collect();
        if of.is_empty() {
            return None;
        }
        // Samples that an overload broke have no figures, and must not leave the verdict to the one that it spared.
        let samples = last_tries(of.iter().copied(), Run::step).len();
        let looks: Vec<Look> = of.into_iter().filter_map(look).collect();
        if looks.len() * 2 < samples {
            return Some((number, Full::NoFigures));
        }
        let Some(now) = median(looks.iter().map(|look| look.score).collect()) else {
            return Some((number, Full::NoFigures));
        };
        let failed = looks.iter().filter(|look| !look.is_kept).count();
        if failed * 2 > looks.len() {
            return Some((number, Full::Quality { failed, of: looks.len() }));
        }
        match before {
            Some(before) if now.total_cmp(&before) != Ordering::Greater => {
                return Some((number, Full::Score { before, now }));
            }
            _ => before = Some(now),
        }
    }
    Some((tiles, Full::NoMoreTiles))
}

#[cfg(test)]
mod tests {
    use nearmetal_load::{Metric, Unit};

    use super::*;
    use crate::results::Outcome;
    use crate::samples::sample_results;

    /// A sample: how many tiles, and the score with whether quality was kept, or nothing.
    type Sampled = (usize, Option<(f64, bool)>);

    /// Of one arm, with tiles of two guests.
    fn runs(samples: &[Sampled]) -> Vec<Run> {
        let model = sample_results().runs.remove(0);
        let outcome = |sampled: Option<(f64, bool)>| match sampled {
            Some((score, is_kept)) => Outcome::Measured {
                metrics: Metric::new("score", Unit::Share, score).into_iter().collect(),
                notes: if is_kept { vec![] } else { vec!["too late".to_owned()] },
            },
            None => Outcome::Failed { why: "no".to_owned() },
        };
        let run = |(position, (tiles, sampled)): (usize, &Sampled)| Run {
            round: *tiles as u32,
            position: position as u32,
            purpose: Purpose::Fill,
            arm: "vf".to_owned(),
            count: tiles * 2,
            outcome: outcome(*sampled),
            ..model.clone()
        };
        samples.iter().enumerate().map(run).collect()
    }

    fn held(samples: &[Sampled], tiles: usize) -> Option<(usize, Full)> {
        let look = |run: &Run| Some(Look { score: run.value("score")?.value, is_kept: run.notes().is_empty() });
        tiles_held(&runs(samples), "vf", 2, tiles, &look)
    }

    #[test]
    fn an_arm_ends_where_quality_fails_where_the_score_does_not_rise_or_where_there_are_no_figures() {
        let (kept, late) = (|score| Some((score, true)), |score| Some((score, false)));
        assert_eq!(held(&[(1, kept(98.0)), (2, late(190.0))], 4), Some((2, Full::Quality { failed: 1, of: 1 })));
        assert_eq!(held(&[(1, kept(98.0)), (2, kept(98.0))], 4), Some((2, Full::Score { before: 98.0, now: 98.0 })));
        assert_eq!(held(&[(1, kept(98.0)), (2, None)], 4), Some((2, Full::NoFigures)));
        assert_eq!(held(&[(1, kept(98.0)), (2, kept(196.0))], 2), Some((2, Full::NoMoreTiles)));
        assert_eq!(held(&[(1, kept(98.0))], 4), None, "it is not over");
    }

    #[test]
    fn half_of_the_samples_is_no_majority_and_those_without_figures_do_not_vote() {
        let of_four =
            [(1, Some((1.0, false))), (1, Some((1.0, false))), (1, Some((1.0, true))), (1, Some((1.0, true)))];
        assert_eq!(held(&of_four, 1), Some((1, Full::NoMoreTiles)), "2 of 4");
        let of_three = [(1, Some((1.0, false))), (1, Some((1.0, false))), (1, Some((1.0, true))), (1, None)];
        assert_eq!(held(&of_three, 1), Some((1, Full::Quality { failed: 2, of: 3 })));
        assert_eq!(held(&[(1, Some((1.0, true))), (1, None), (1, None)], 1), Some((1, Full::NoFigures)), "1 of 3");
    }

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(median(vec![4.0, 1.0, 2.0, 8.0]), Some(3.0));
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![]), None);
    }
}
