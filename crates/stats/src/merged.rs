//! Percentiles over several runs' histograms.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{StatsError, within};

/// Counted values, merged from the histograms of several runs.
///
/// Percentiles do not average: the 99th percentile of two runs is that of all their values together (Tene, "How not to
/// measure latency", 2013).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MergedCounts(BTreeMap<u64, u64>);

impl MergedCounts {
    /// Adds `count` occurrences of `value`.
    pub fn add(&mut self, value: u64, count: u64) {
        let entry = self.0.entry(value).or_insert(0);
        *entry = entry.saturating_add(count);
    }

    /// Adds all of another histogram.
    pub fn merge(&mut self, other: &MergedCounts) {
        for (&value, &count) in &other.0 {
            self.add(value, count);
        }
    }

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |total, &count| total.saturating_add(count))
    }

    /// The smallest value that at least `percent` of the values do not exceed: the nearest rank, ⌈percent/100·N⌉, which
    /// is definition 1 of Hyndman and Fan 1996. Unlike [`crate::Sample::percentile`] it never names a value not counted.
    pub fn percentile(&self, percent: f64) -> Result<u64, StatsError> {
        let percent = within("the percentile", percent, 0.0, 100.0)?;
        let rank = ((percent / 100.0 * self.total() as f64).ceil() as u64).clamp(1, self.total().max(1));
        let mut passed = 0_u64;
        for (&value, &count) in &self.0 {
            passed = passed.saturating_add(count);
            if passed >= rank {
                return Ok(value);
            }
        }
        Err(StatsError::Empty)
    }
}

impl FromIterator<(u64, u64)> for MergedCounts {
    /// From (value, count); a value may come more than once.
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(bins: I) -> MergedCounts {
        let mut counts = MergedCounts::default();
        for (value, count) in bins {
            counts.add(value, count);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_the_whole_are_not_the_mean_of_the_parts() {
        let quick = MergedCounts::from_iter([(10, 990), (20, 10)]);
        let slow = MergedCounts::from_iter([(10, 900), (500, 100)]);
        let mut both = quick.clone();
        both.merge(&slow);
        assert_eq!(both.total(), 2000);
        let table = [(0.0, 10), (50.0, 10), (94.5, 10), (94.6, 20), (95.0, 20), (95.1, 500), (100.0, 500)];
        for (percent, expected) in table {
            assert_eq!(both.percentile(percent), Ok(expected), "p{percent}");
        }
        assert_eq!((quick.percentile(99.0), slow.percentile(99.0)), (Ok(10), Ok(500)));
    }

    #[test]
    fn nothing_counted_has_no_percentile() {
        assert_eq!(MergedCounts::default().percentile(50.0), Err(StatsError::Empty));
        assert_eq!(MergedCounts::from_iter([(7, 0)]).percentile(50.0), Err(StatsError::Empty));
        assert!(matches!(MergedCounts::from_iter([(7, 1)]).percentile(-1.0), Err(StatsError::OutOfRange { .. })));
    }
}
