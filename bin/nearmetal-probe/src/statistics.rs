//! Raw samples with the three figures printed beside them.
//!
//! All samples are kept: the minimum alone hides steal time and jitter, which are part of what a guest costs.

use serde::Serialize;

/// Samples in the order taken, with their unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Samples {
    /// Unit of every figure here, such as `ns/load`.
    pub unit: &'static str,
    /// How many samples.
    pub count: usize,
    /// Middle of the sorted samples; the mean of the two middle ones for an even count.
    pub median: f64,
    /// 99th percentile by nearest rank: the smallest sample with at least 99 % of the samples at or below it.
    pub p99: f64,
    /// Smallest sample.
    pub minimum: f64,
    /// The samples, in the order taken.
    pub values: Vec<f64>,
}

impl Samples {
    /// Summarises; `None` if there is no sample or one that is not a finite number.
    pub fn new(unit: &'static str, values: Vec<f64>) -> Option<Self> {
        if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        let rank = (count * 99).div_ceil(100).max(1);
        Some(Self { unit, count, median, p99: sorted[rank - 1], minimum: sorted[0], values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn figures_of_a_known_series() {
        let samples = Samples::new("ns", (1..=200).rev().map(f64::from).collect()).unwrap();
        assert_eq!((samples.median, samples.p99, samples.minimum), (100.5, 198.0, 1.0));
        assert_eq!(samples.values[0], 200.0, "order is kept");
    }

    #[test]
    fn nothing_is_not_a_figure() {
        assert_eq!(Samples::new("ns", vec![]), None);
        assert_eq!(Samples::new("ns", vec![1.0, f64::NAN]), None);
    }

    proptest! {
        #[test]
        fn minimum_median_p99_are_in_order(values in proptest::collection::vec(-1e9f64..1e9, 1..300)) {
            let samples = Samples::new("ns", values).unwrap();
            prop_assert!(samples.minimum <= samples.median && samples.median <= samples.p99);
        }
    }
}
