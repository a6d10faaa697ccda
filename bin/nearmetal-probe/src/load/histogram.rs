//! Counts of times in buckets whose width grows with the time, so that a percentile is never off by more than a known part.
//!
//! Every power of two is divided into 128 buckets: a value below 128 ns has a bucket of its own, any other shares one whose
//! ends are less than 1/128 apart. A percentile is given as its bucket's upper end, so it is never too small.

use serde::Serialize;

/// Bits that tell the buckets of one power of two apart.
const BITS: u32 = 7;
/// Buckets of one power of two.
const SUB: u64 = 1 << BITS;
/// Buckets in all: one for each value below [`SUB`], and [`SUB`] for each power of two from there to 2^63.
const BUCKETS: usize = (SUB + (64 - BITS as u64) * SUB) as usize;

/// How far above the true value a percentile may be given: this part of it.
pub const ERROR_BOUND: f64 = 1.0 / SUB as f64;

/// Times in ns, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    minimum: u64,
    maximum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum: 0, minimum: u64::MAX, maximum: 0 }
    }
}

/// The bucket of a value.
fn index(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - BITS;
    (SUB + u64::from(shift) * SUB + (value >> shift) - SUB) as usize
}

/// The largest value of a bucket.
fn upper(index: usize) -> u64 {
    let index = index as u64;
    if index < SUB {
        return index;
    }
    let (shift, sub) = ((index - SUB) / SUB, (index - SUB) % SUB);
    // The last bucket ends where 64 bits do.
    ((u128::from(sub + SUB + 1) << shift) - 1).min(u128::from(u64::MAX)) as u64
}

impl Histogram {
    /// Counts a value, in ns.
    pub fn record(&mut self, value: u64) {
        if let Some(count) = self.counts.get_mut(index(value)) {
            *count += 1;
        }
        self.count += 1;
        self.sum += u128::from(value);
        self.minimum = self.minimum.min(value);
        self.maximum = self.maximum.max(value);
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, more)| *own += more);
        self.count += other.count;
        self.sum += other.sum;
        self.minimum = self.minimum.min(other.minimum);
        self.maximum = self.maximum.max(other.maximum);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The value with at least `per_10_000` ten-thousandths of all at or below it (nearest rank), where `beyond` more are
    /// larger than any that was counted; `None` if there is none, or if it is one of those. In ns, and at most
    /// [`ERROR_BOUND`] above the true one.
    pub fn percentile(&self, per_10_000: u64, beyond: u64) -> Option<u64> {
        let all = u128::from(self.count) + u128::from(beyond);
        let rank = (all * u128::from(per_10_000)).div_ceil(10_000).max(1);
        let mut seen: u128 = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return Some(upper(index).min(self.maximum));
            }
        }
        None
    }

    /// The figures, where `unanswered` more took longer than any.
    pub fn figures(&self, unanswered: u64) -> Times {
        let is_empty = self.count == 0;
        Times {
            unit: "ns",
            count: self.count,
            unanswered,
            error_bound: ERROR_BOUND,
            minimum: (!is_empty).then_some(self.minimum),
            mean: (!is_empty).then(|| self.sum as f64 / self.count as f64),
            p50: self.percentile(5_000, unanswered),
            p90: self.percentile(9_000, unanswered),
            p95: self.percentile(9_500, unanswered),
            p99: self.percentile(9_900, unanswered),
            p99_9: self.percentile(9_990, unanswered),
            maximum: (!is_empty).then_some(self.maximum),
        }
    }
}

/// What is printed of a histogram.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Times {
    /// Always `ns`.
    pub unit: &'static str,
    /// Values counted.
    pub count: u64,
    /// Requests that have no value since they were never answered; percentiles count them as longer than any other.
    pub unanswered: u64,
    /// Percentiles may be too large by this part of them, and are never too small.
    pub error_bound: f64,
    /// Smallest value, exact; `None` if there is none.
    pub minimum: Option<u64>,
    /// Mean of the values there are, exact.
    pub mean: Option<f64>,
    /// Half of all are at or below it; `None` if it falls among those that have no value.
    pub p50: Option<u64>,
    /// See [`Times::p50`].
    pub p90: Option<u64>,
    /// See [`Times::p50`].
    pub p95: Option<u64>,
    /// See [`Times::p50`].
    pub p99: Option<u64>,
    /// See [`Times::p50`].
    pub p99_9: Option<u64>,
    /// Largest value, exact.
    pub maximum: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value));
        histogram
    }

    #[test]
    fn the_ends_of_all_buckets_follow_each_other() {
        for index_of in 0..BUCKETS - 1 {
            let end = upper(index_of);
            assert_eq!((index(end), index(end + 1)), (index_of, index_of + 1), "{end}");
        }
        assert_eq!((index(u64::MAX), upper(BUCKETS - 1)), (BUCKETS - 1, u64::MAX));
    }

    #[test]
    fn what_was_never_answered_is_longer_than_anything() {
        let histogram = of(&[10, 20, 30, 40, 50, 60, 70, 80, 90]);
        assert_eq!(histogram.percentile(9_000, 1), Some(90), "nine of ten");
        assert_eq!(histogram.percentile(9_500, 1), None);
        assert_eq!(histogram.percentile(9_500, 0), Some(90));
        assert_eq!(Histogram::default().percentile(5_000, 0), None, "nothing is not a figure");
        assert_eq!(Histogram::default().figures(0).minimum, None);
    }

    proptest! {
        #[test]
        fn a_percentile_is_never_too_small_and_too_large_by_the_bound_at_most(
            mut values in proptest::collection::vec(any::<u64>().prop_map(|value| value >> (value % 64)), 1..400),
            per_10_000 in 1u64..=10_000,
        ) {
            let found = of(&values).percentile(per_10_000, 0).unwrap();
            values.sort_unstable();
            let rank = (values.len() as u128 * u128::from(per_10_000)).div_ceil(10_000) as usize;
            let truth = values[rank - 1];
            prop_assert!(found >= truth, "{found} < {truth}");
            prop_assert!((found - truth) as f64 <= truth as f64 * ERROR_BOUND, "{found} for {truth}");
        }

        #[test]
        fn two_halves_added_are_the_whole(values in proptest::collection::vec(0u64..1 << 40, 0..200), at in 0usize..200) {
            let (left, right) = values.split_at(at.min(values.len()));
            let mut sum = of(left);
            sum.add(&of(right));
            prop_assert_eq!(sum, of(&values));
        }
    }
}
