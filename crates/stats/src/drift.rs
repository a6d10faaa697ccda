//! Whether a run had warmed up before it was measured.

use serde::{Deserialize, Serialize};

use crate::quantile::standard_normal;
use crate::sample::{Sample, mean};

/// With fewer samples no order of them is rare enough to reach [`CONFIDENCE`].
const FEWEST_SAMPLES: usize = 12;
/// Confidence of the test. High, because the samples of a run resemble their neighbours and the test takes them for
/// independent, and because every run of an experiment is tested.
const CONFIDENCE: f64 = 0.99;
/// A smaller change is not flagged, however many samples make it certain.
const LEAST_CHANGE: f64 = 0.01;

/// The halves of one run. A flag is shown with the result; nothing is trimmed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// Mean of the first half, in the unit of the samples.
    pub first_mean: f64,
    /// Mean of the second half, in the same unit.
    pub second_mean: f64,
    /// second_mean / first_mean
    pub ratio: f64,
    /// The halves differ by more than chance explains and by at least 1 %.
    pub flagged: bool,
}

/// Compares the halves of a series in the order measured by the rank test of Mann and Whitney 1947, Annals of
/// Mathematical Statistics 18(1):50-60.
///
/// By ranks and not by means, because a run that warms up has its spread in the first half: a t test takes that ramp for
/// noise, and passes a run that begins at half its speed. For the same reason one stalled second is no drift.
///
/// `None` where it cannot be told: fewer than twelve samples, one that is negative or not finite, or a first half that is
/// all zero.
pub fn warm_up_drift(series: &[f64]) -> Option<Drift> {
    if series.len() < FEWEST_SAMPLES || series.iter().any(|value| *value < 0.0) {
        return None;
    }
    let sample = Sample::new(series.to_vec()).ok()?;
    let (first, second) = sample.values().split_at(series.len() / 2);
    let (first_mean, second_mean) = (mean(first), mean(second));
    let ratio = second_mean / first_mean;
    if !ratio.is_finite() {
        return None;
    }
    let large = (ratio - 1.0).abs() >= LEAST_CHANGE;
    let unlikely = rank_score(first, second) > standard_normal(0.5 + CONFIDENCE / 2.0);
    Some(Drift { first_mean, second_mean, ratio, flagged: large && unlikely })
}

/// |U − n₁n₂/2| in standard deviations, U = Σ ranks of the first − n₁(n₁+1)/2, with ties sharing their rank, their
/// correction of the variance, and the correction for continuity (Lehmann 1975, "Nonparametrics", chapter 1). Zero where
/// all values are equal.
fn rank_score(first: &[f64], second: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = first.iter().map(|&value| (value, true)).collect();
    all.extend(second.iter().map(|&value| (value, false)));
    all.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));

    let (mut ranks_of_first, mut ties, mut before) = (0.0, 0.0, 0.0);
    for equal in all.chunk_by(|one, other| one.0 == other.0) {
        let count = equal.len() as f64;
        let shared_rank = before + (count + 1.0) / 2.0;
        ranks_of_first += shared_rank * equal.iter().filter(|(_, is_first)| *is_first).count() as f64;
        ties += count.powi(3) - count;
        before += count;
    }

    let (n_first, n_second) = (first.len() as f64, second.len() as f64);
    let n = n_first + n_second;
    let u = ranks_of_first - n_first * (n_first + 1.0) / 2.0;
    let variance = n_first * n_second / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    if variance <= 0.0 {
        return 0.0;
    }
    ((u - n_first * n_second / 2.0).abs() - 0.5).max(0.0) / variance.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flagged(series: &[f64]) -> bool {
        warm_up_drift(series).unwrap().flagged
    }

    #[test]
    fn a_ramp_is_flagged_and_a_steady_run_is_not() {
        for length in [12, 20, 60] {
            let ramp: Vec<f64> = (0..length).map(|second| 1000.0 - 500.0 * f64::powi(0.7, second)).collect();
            let drift = warm_up_drift(&ramp).unwrap();
            assert!(drift.flagged && drift.ratio > 1.05 && drift.second_mean > drift.first_mean, "{drift:?}");
        }
        let steady: Vec<f64> = (0..20).map(|second| 1000.0 + 40.0 * f64::from(second * 7 % 5)).collect();
        assert!(!flagged(&steady));
    }

    #[test]
    fn one_stalled_second_is_no_drift() {
        let mut series: Vec<f64> = (0..30).map(|second| 1000.0 + f64::from(second * 7 % 5)).collect();
        series[2] = 0.0;
        let drift = warm_up_drift(&series).unwrap();
        assert!(!drift.flagged && drift.ratio > 1.05, "{drift:?}");
    }

    #[test]
    fn a_certain_change_that_does_not_matter_is_not_flagged() {
        let step = |to: f64| -> Vec<f64> { (0..40).map(|index| if index < 20 { 1000.0 } else { to }).collect() };
        assert!(!flagged(&step(1005.0)));
        assert!(flagged(&step(1050.0)));
        assert!(flagged(&step(950.0)));
        assert!(!flagged(&[5.0; 13]));
    }

    #[test]
    fn steady_noise_is_flagged_about_once_in_a_hundred() {
        let mut random = oorandom::Rand32::new(11);
        let runs = 4000;
        let mut count = 0;
        for _ in 0..runs {
            let series: Vec<f64> = (0..20).map(|_| 1.0 + f64::from(random.rand_float())).collect();
            count += u32::from(flagged(&series));
        }
        assert!((15..=60).contains(&count), "{count} of {runs}");
    }

    #[test]
    fn what_cannot_be_told_is_none() {
        assert_eq!(warm_up_drift(&[1.0; 11]), None);
        assert_eq!(warm_up_drift(&[0.0; 20]), None);
        let mut series = [1.0; 20];
        series[3] = f64::NAN;
        assert_eq!(warm_up_drift(&series), None);
        series[3] = -1.0;
        assert_eq!(warm_up_drift(&series), None);
        series[3] = 0.0;
        assert!(warm_up_drift(&series).is_some(), "a second in which nothing was done is a sample");
    }

    #[test]
    fn the_score_equals_those_of_r() {
        // R 4, Student's sleep data: wilcox.test(extra ~ group, exact = FALSE): W = 25.5, p = 0.06933, so |z| = 1.8164.
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        assert!((rank_score(&first, &second) - 1.8164).abs() < 5e-4, "{}", rank_score(&first, &second));
        assert_eq!(rank_score(&first, &second), rank_score(&second, &first));
        assert_eq!(rank_score(&[1.0; 6], &[1.0; 6]), 0.0);
        // By hand, with a tie of three and no other: ranks of the first 2 + 2 + 4 = 8, U = 2, variance 9/12·(7 − 24/30) =
        // 4.65, so (|2 − 4.5| − 0.5)/√4.65 = 0.9275.
        assert!((rank_score(&[1.0, 1.0, 2.0], &[1.0, 3.0, 4.0]) - 0.9275).abs() < 5e-4);
    }
}
