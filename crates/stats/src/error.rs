//! Why a figure cannot be had.

use thiserror::Error;

/// Why a figure cannot be had. Positions count from 0, in the order given.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StatsError {
    /// There is nothing to compute from.
    #[error("no samples")]
    Empty,
    /// A NaN or an infinity.
    #[error("{what} at position {index} is {value}, not a finite number")]
    NotFinite {
        /// Which input, in words.
        what: &'static str,
        /// Its position in that input.
        index: usize,
        /// The value found.
        value: f64,
    },
    /// A value that has no logarithm.
    #[error("{what} at position {index} is {value}; a ratio needs values above zero")]
    NotPositive {
        /// Which input, in words.
        what: &'static str,
        /// Its position in that input.
        index: usize,
        /// The value found, zero or less.
        value: f64,
    },
    /// Fewer values than the method needs.
    #[error("{what}: {found} given, at least {needed} needed")]
    TooFew {
        /// Which input, in words.
        what: &'static str,
        /// The least number that will do.
        needed: usize,
        /// The number given.
        found: usize,
    },
    /// A parameter beyond its limits, or NaN.
    #[error("{what} is {value}, outside {low} to {high}")]
    OutOfRange {
        /// Which parameter, in words.
        what: &'static str,
        /// The value given.
        value: f64,
        /// The lowest value allowed.
        low: f64,
        /// The highest value allowed.
        high: f64,
    },
}

/// `Ok(value)` if it lies in `low..=high`; NaN lies in no range.
pub(crate) fn within(what: &'static str, value: f64, low: f64, high: f64) -> Result<f64, StatsError> {
    if (low..=high).contains(&value) { Ok(value) } else { Err(StatsError::OutOfRange { what, value, low, high }) }
}

/// A confidence level this crate answers for.
///
/// Below one half an interval says nothing; above 0.999 the tails of [`crate::RESAMPLES`] resamples hold fewer than
/// five values each.
pub(crate) fn confidence_level(confidence: f64) -> Result<f64, StatsError> {
    within("the confidence", confidence, 0.5, 0.999)
}
