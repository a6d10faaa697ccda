//! Samples of one quantity.

use serde::{Deserialize, Serialize};

use crate::error::{StatsError, within};

/// Larger magnitudes are refused, so that sums of squares stay finite whatever is measured.
const LARGEST_MAGNITUDE: f64 = 1e150;

/// A non-empty set of finite samples, kept in the order measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f64>", into = "Vec<f64>")]
pub struct Sample(Vec<f64>);

#[allow(clippy::len_without_is_empty)] // never empty: `new` refuses
impl Sample {
    /// Checks the values and keeps their order.
    ///
    /// # Errors
    /// No value at all, one that is not finite, or one beyond ±1e150, whose square would overflow.
    pub fn new(values: Vec<f64>) -> Result<Sample, StatsError> {
        if values.is_empty() {
            return Err(StatsError::Empty);
        }
        for (index, &value) in values.iter().enumerate() {
            if !value.is_finite() {
                return Err(StatsError::NotFinite { what: "the sample", index, value });
            }
            within("a sample", value, -LARGEST_MAGNITUDE, LARGEST_MAGNITUDE)?;
        }
        Ok(Sample(values))
    }

    /// The samples in the order measured.
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// The number of samples, at least 1.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Arithmetic mean, Σx/n. It lies between [`Sample::minimum`] and [`Sample::maximum`].
    pub fn mean(&self) -> f64 {
        // Rounding may carry the sum of equal values past them by a last digit.
        mean(&self.0).clamp(self.minimum(), self.maximum())
    }

    /// Sample standard deviation, √(Σ(x−mean)²/(n−1)), with Bessel's n−1; `None` for a single sample, whose spread is
    /// unknown and not zero.
    pub fn standard_deviation(&self) -> Option<f64> {
        (self.len() >= 2).then(|| standard_deviation(&self.0))
    }

    /// The 50th percentile.
    pub fn median(&self) -> f64 {
        quantile_of_sorted(&self.sorted(), 0.5)
    }

    /// Percentile for `percent` in 0 to 100, linear between the two nearest order statistics: definition 7 of Hyndman
    /// and Fan 1996, "Sample quantiles in statistical packages", The American Statistician 50(4):361-365; the default
    /// of R and NumPy.
    pub fn percentile(&self, percent: f64) -> Result<f64, StatsError> {
        let percent = within("the percentile", percent, 0.0, 100.0)?;
        Ok(quantile_of_sorted(&self.sorted(), percent / 100.0))
    }

    /// The smallest sample.
    pub fn minimum(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest sample.
    pub fn maximum(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }
}

impl TryFrom<Vec<f64>> for Sample {
    type Error = StatsError;

    fn try_from(values: Vec<f64>) -> Result<Sample, StatsError> {
        Sample::new(values)
    }
}

impl From<Sample> for Vec<f64> {
    fn from(sample: Sample) -> Vec<f64> {
        sample.0
    }
}

/// Mean of a non-empty slice.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Standard deviation with n−1, of at least two values. Two passes: the one-pass form loses all digits where the
/// spread is small beside the mean (Chan, Golub and LeVeque 1983, The American Statistician 37(3):242-247).
pub(crate) fn standard_deviation(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Hyndman and Fan's definition 7 on a sorted, non-empty slice; `fraction` in 0 to 1.
pub(crate) fn quantile_of_sorted(sorted: &[f64], fraction: f64) -> f64 {
    let position = (sorted.len() - 1) as f64 * fraction;
    let below = position.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let weight = position - below as f64;
    sorted[below] + weight * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: &[f64]) -> Sample {
        Sample::new(values.to_vec()).unwrap()
    }

    #[test]
    fn percentiles_equal_those_of_r() {
        // R 4: quantile(1:10, c(0, .1, .25, .5, .9, .99, 1)), type 7
        let ten: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let table = [(0.0, 1.0), (10.0, 1.9), (25.0, 3.25), (50.0, 5.5), (90.0, 9.1), (99.0, 9.91), (100.0, 10.0)];
        for (percent, expected) in table {
            let found = sample(&ten).percentile(percent).unwrap();
            assert!((found - expected).abs() < 1e-12, "p{percent}: {found}, expected {expected}");
        }
        assert_eq!(sample(&[7.0]).percentile(99.0), Ok(7.0));
    }

    #[test]
    fn moments_equal_those_published_for_a_certified_set() {
        // NIST Statistical Reference Datasets, NumAcc3: 1000000.2, then 500 times 1000000.1 and 1000000.3;
        // certified mean 1000000.2, standard deviation 0.1.
        let mut values = vec![1_000_000.2];
        for _ in 0..500 {
            values.extend([1_000_000.1, 1_000_000.3]);
        }
        let set = sample(&values);
        assert!((set.mean() - 1_000_000.2).abs() < 1e-6);
        assert!((set.standard_deviation().unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn one_sample_has_no_spread() {
        let one = sample(&[3.5]);
        assert_eq!((one.mean(), one.median(), one.minimum(), one.maximum()), (3.5, 3.5, 3.5, 3.5));
        assert_eq!(one.standard_deviation(), None);
    }

    #[test]
    fn order_of_measurement_is_kept() {
        assert_eq!(sample(&[3.0, 1.0, 2.0]).values(), [3.0, 1.0, 2.0]);
        assert_eq!(sample(&[3.0, 1.0, 2.0]).median(), 2.0);
    }

    #[test]
    fn what_is_no_sample_is_refused() {
        assert_eq!(Sample::new(vec![]), Err(StatsError::Empty));
        assert!(matches!(Sample::new(vec![1.0, f64::NAN]), Err(StatsError::NotFinite { index: 1, .. })));
        assert!(matches!(Sample::new(vec![f64::INFINITY]), Err(StatsError::NotFinite { index: 0, .. })));
        assert!(matches!(Sample::new(vec![1e200]), Err(StatsError::OutOfRange { .. })));
        assert!(matches!(sample(&[1.0]).percentile(100.1), Err(StatsError::OutOfRange { .. })));
        assert!(matches!(sample(&[1.0]).percentile(f64::NAN), Err(StatsError::OutOfRange { .. })));
        assert!(serde_json::from_str::<Sample>("[]").is_err());
        assert_eq!(serde_json::from_str::<Sample>("[2.0,1.5]").unwrap().values(), [2.0, 1.5]);
        assert_eq!(serde_json::to_string(&sample(&[2.0, 1.5])).unwrap(), "[2.0,1.5]");
    }
}
