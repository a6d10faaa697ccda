//! When an arm has as many tiles as its machine holds: worked out of the runs.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::results::{Purpose, Run};

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
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some((values[last / 2] + values[last.div_ceil(2)]) / 2.0)
}

/// Whether an arm is full, and with how many tiles: the first number of them at which one of the reasons holds.
pub fn full(
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
        let samples: BTreeSet<(u32, u32)> = of.iter().map(|run| (run.round, run.position)).collect();
        let looks: Vec<Look> = of.into_iter().filter_map(look).collect();
        if looks.len() * 2 < samples.len() {
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
