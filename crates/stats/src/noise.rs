//! What two equal arms show, and what may be claimed beside it.

use serde::{Deserialize, Serialize};

use crate::error::{StatsError, confidence_level};
use crate::pair::{Interval, Pair, log_ratios, student_interval};
use crate::ratio::RatioEstimate;

/// How far apart two runs of the same arm are: the A/A control. All figures are finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoiseFloor {
    /// Pairs.
    pub n: usize,
    /// exp(mean log ratio); 1 but for chance, unless running first or second matters.
    pub ratio: f64,
    /// Student's t interval on `ratio`. With two pairs its t is 12.7, and it says little.
    pub low: f64,
    /// The upper end of that interval.
    pub high: f64,
    /// Half the width of that interval as a logarithm, t·s/√n: 0.03 reads as ±3 %.
    pub half_width: f64,
    /// The largest |ln(first/second)| seen in one pair.
    pub largest_log_ratio: f64,
}

impl NoiseFloor {
    /// The factor, 1 or more, that a difference must exceed to be claimed: the lesser of the end of the t interval
    /// farther from 1, and the largest factor seen between two equal runs.
    ///
    /// With two to four pairs that is the largest seen, since the t interval is then wide for want of pairs and not of
    /// agreement; with more it is the t interval, which narrows as pairs are added where the largest seen only grows.
    /// Taking the lesser is safe: what chance alone does to an estimate is in the estimate's own interval. The floor
    /// guards against what pairing does not remove, which shows in every A/A pair.
    pub fn factor(&self) -> f64 {
        let student = self.low.ln().abs().max(self.high.ln().abs());
        student.min(self.largest_log_ratio).exp()
    }
}

/// The noise floor from pairs of two equal arms, at least two pairs.
///
/// The interval is Student's t on log ratios, as in [`crate::ratio`]. That a comparison carries an A/A control follows
/// Kohavi, Longbotham et al. 2009, "Controlled experiments on the web", Data Mining and Knowledge Discovery 18:140-181.
pub fn noise_floor(pairs: &[Pair], confidence: f64) -> Result<NoiseFloor, StatsError> {
    let confidence = confidence_level(confidence)?;
    let logs = log_ratios(pairs, 2)?;
    let (centre, half_width) = student_interval(&logs, confidence);
    let interval = Interval::from_logarithms(centre - half_width, centre, centre + half_width)?;
    let largest_log_ratio = logs.iter().map(|log| log.abs()).fold(0.0, f64::max);
    let Interval { low, high } = interval;
    Ok(NoiseFloor { n: logs.len(), ratio: centre.exp(), low, high, half_width, largest_log_ratio })
}

/// What may be claimed. For a rate, where a ratio above 1 is faster; for a time see [`Verdict::of_times`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies above 1 and above the noise floor.
    Faster,
    /// The whole interval lies below 1 and below the noise floor.
    Slower,
    /// The whole interval lies within the noise floor: a difference, if there is one, is no larger than between equals.
    NoDifferenceShown,
    /// The interval reaches across an edge of the noise floor: the pairs measured do not decide. More may.
    NotResolved,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifferenceShown => "no difference shown",
            Self::NotResolved => "not resolved",
        })
    }
}

impl Verdict {
    /// The same verdict where the values compared are times, and a ratio above 1 is slower.
    pub fn of_times(self) -> Verdict {
        match self {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            same => same,
        }
    }
}

/// Where the recommended interval lies beside the noise floor [1/f, f], f = [`NoiseFloor::factor`]. This is the interval
/// form of the equivalence test (Schuirmann 1987, J. Pharmacokinetics and Biopharmaceutics 15(6):657-680).
///
/// Without A/A pairs the floor is 1 alone: an interval that leaves 1 out is a difference, any other is not resolved.
pub fn verdict(estimate: &RatioEstimate, noise: Option<&NoiseFloor>) -> Verdict {
    let interval = estimate.interval();
    let factor = noise.map_or(1.0, NoiseFloor::factor);
    if interval.low > factor {
        Verdict::Faster
    } else if interval.high < factor.recip() {
        Verdict::Slower
    } else if interval.low >= factor.recip() && interval.high <= factor {
        Verdict::NoDifferenceShown
    } else {
        Verdict::NotResolved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio::IntervalKind;

    fn from_log_ratios(logs: &[f64]) -> Vec<Pair> {
        logs.iter().map(|log| Pair { subject: log.exp(), reference: 1.0 }).collect()
    }

    fn estimate(low: f64, high: f64) -> RatioEstimate {
        RatioEstimate {
            n: 6,
            ratio: (low * high).sqrt(),
            student_t: Interval { low, high },
            bootstrap: Interval { low: 0.001, high: 1000.0 },
            recommended: IntervalKind::StudentT,
            confidence: 0.95,
            seed: 1,
            resamples: 10_000,
        }
    }

    #[test]
    fn two_pairs_give_a_wide_interval_and_a_floor_of_the_largest_seen() {
        let noise = noise_floor(&from_log_ratios(&[0.02, -0.01]), 0.95).unwrap();
        // mean 0.005, s = 0.03/√2, s/√2 = 0.015, times 12.7062
        assert!((noise.half_width - 0.190_593).abs() < 1e-6, "{noise:?}");
        assert!((noise.low.ln() - (0.005 - 0.190_593)).abs() < 1e-6);
        assert!((noise.high.ln() - (0.005 + 0.190_593)).abs() < 1e-6);
        assert!((noise.factor().ln() - 0.02).abs() < 1e-12);
    }

    #[test]
    fn a_verdict_reads_as_words() {
        let each = [Verdict::Faster, Verdict::Slower, Verdict::NoDifferenceShown, Verdict::NotResolved];
        assert_eq!(
            each.map(|verdict| verdict.to_string()),
            ["faster", "slower", "no difference shown", "not resolved"]
        );
    }

    #[test]
    fn many_pairs_give_a_floor_of_the_interval() {
        let logs: Vec<f64> = (0..20).map(|index| if index % 2 == 0 { 0.02 } else { -0.02 }).collect();
        let noise = noise_floor(&from_log_ratios(&logs), 0.95).unwrap();
        assert!(noise.half_width < 0.01 && (noise.factor().ln() - noise.half_width).abs() < 1e-9, "{noise:?}");
        assert!((noise.largest_log_ratio - 0.02).abs() < 1e-12);
    }

    #[test]
    fn running_first_or_second_is_noise_too() {
        let noise = noise_floor(&from_log_ratios(&[0.05, 0.051, 0.049, 0.05, 0.052, 0.048]), 0.95).unwrap();
        assert!(noise.factor().ln() > 0.05, "a shift common to all pairs is in the floor: {noise:?}");
    }

    #[test]
    fn a_gain_smaller_than_the_noise_is_not_claimed() {
        use Verdict::{Faster, NoDifferenceShown, NotResolved, Slower};
        let noise = noise_floor(&from_log_ratios(&[0.03, -0.05]), 0.95).unwrap(); // floor 0.951 to 1.051
        let table = [
            (1.20, 1.60, Faster, Faster),
            (1.06, 1.10, Faster, Faster),
            (1.01, 1.04, NoDifferenceShown, Faster),
            (1.01, 1.10, NotResolved, Faster),
            (0.98, 1.04, NoDifferenceShown, NotResolved),
            (0.70, 1.50, NotResolved, NotResolved),
            (0.90, 0.99, NotResolved, Slower),
            (0.60, 0.90, Slower, Slower),
            (1.00, 1.00, NoDifferenceShown, NoDifferenceShown),
        ];
        for (low, high, with_noise, without) in table {
            let estimate = estimate(low, high);
            assert_eq!(verdict(&estimate, Some(&noise)), with_noise, "{low} to {high} beside noise");
            assert_eq!(verdict(&estimate, None), without, "{low} to {high} alone");
        }
        assert_eq!(Faster.of_times(), Slower);
        assert_eq!(NotResolved.of_times(), NotResolved);
    }

    #[test]
    fn equal_runs_have_no_floor_and_too_few_none_either() {
        assert_eq!(noise_floor(&from_log_ratios(&[0.0, 0.0]), 0.95).unwrap().factor(), 1.0);
        let too_few = StatsError::TooFew { what: "pairs", needed: 2, found: 1 };
        assert_eq!(noise_floor(&from_log_ratios(&[0.0]), 0.95), Err(too_few));
    }
}
