//! Pairs and the intervals drawn from them.

use serde::{Deserialize, Serialize};

use crate::error::{StatsError, within};
use crate::quantile::student_t;
use crate::sample::{mean, standard_deviation};

/// One pair: subject and reference, both > 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The arm that the ratio is about, in the unit of the metric.
    pub subject: f64,
    /// The arm it is divided by, in the same unit.
    pub reference: f64,
}

/// An interval on a ratio: `low` ≤ ratio ≤ `high`, all finite and above zero.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Interval {
    /// Lower end, included.
    pub low: f64,
    /// Upper end, included.
    pub high: f64,
}

impl Interval {
    /// Whether the ratio lies between the ends, which are included; a NaN does not.
    pub fn contains(&self, ratio: f64) -> bool {
        (self.low..=self.high).contains(&ratio)
    }

    /// The interval whose logarithms are `low` and `high`, around the ratio whose logarithm is `centre`.
    ///
    /// Refused where an end is no number any more: pairs that far apart are no measurement of one thing.
    pub(crate) fn from_logarithms(low: f64, centre: f64, high: f64) -> Result<Interval, StatsError> {
        // Beyond 700 either exp is infinite or its reciprocal is zero. The minimum and maximum undo rounding where all
        // pairs are equal.
        let end = |logarithm| within("the logarithm of an interval's end", logarithm, -700.0, 700.0).map(f64::exp);
        Ok(Interval { low: end(low.min(centre))?, high: end(high.max(centre))? })
    }
}

/// ln(subject/reference) of every pair, as a difference so that no quotient overflows.
pub(crate) fn log_ratios(pairs: &[Pair], needed: usize) -> Result<Vec<f64>, StatsError> {
    let positive = |what, index, value: f64| {
        if !value.is_finite() {
            Err(StatsError::NotFinite { what, index, value })
        } else if value <= 0.0 {
            Err(StatsError::NotPositive { what, index, value })
        } else {
            Ok(value)
        }
    };
    if pairs.len() < needed {
        return Err(StatsError::TooFew { what: "pairs", needed, found: pairs.len() });
    }
    let logarithm = |(index, pair): (usize, &Pair)| {
        let subject = positive("the subject", index, pair.subject)?;
        let reference = positive("the reference", index, pair.reference)?;
        Ok(subject.ln() - reference.ln())
    };
    pairs.iter().enumerate().map(logarithm).collect()
}

/// Half the width of Student's t interval on the mean of at least two values: t(1−α/2; n−1)·s/√n
/// (Student 1908, "The probable error of a mean", Biometrika 6(1):1-25).
pub(crate) fn student_half_width(values: &[f64], confidence: f64) -> f64 {
    let n = values.len() as f64;
    student_t(0.5 + confidence / 2.0, n - 1.0) * standard_deviation(values) / n.sqrt()
}

/// Mean and half-width of Student's t interval.
pub(crate) fn student_interval(values: &[f64], confidence: f64) -> (f64, f64) {
    (mean(values), student_half_width(values, confidence))
}
