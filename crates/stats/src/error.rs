//! Why a figure cannot be had.

use thiserror::Error;

/// Why a figure cannot be had. Positions count from 0, in the order given.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StatsError {
    #[error("no samples")]
    Empty,
    #[error("{what} at position {index} is {value}, not a finite number")]
    NotFinite { what: &'static str, index: usize, value: f64 },
    #[error("{what} at position {index} is {value}; a ratio needs values above zero")]
    NotPositive { what: &'static str, index: usize, value: f64 },
    #[error("{what}: {found} given, at least {needed} needed")]
    TooFew { what: &'static str, needed: usize, found: usize },
    #[error("{what} is {value}, outside {low} to {high}")]
    OutOfRange { what: &'static str, value: f64, low: f64, high: f64 },
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
