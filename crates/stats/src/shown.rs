//! How a ratio and its interval are written, for every text, page and picture there is: `0.62× (0.58–0.66)`.

use std::fmt;

use crate::pair::Interval;
use crate::ratio::RatioEstimate;

/// Decimals of an everyday ratio.
const DECIMALS: usize = 2;
/// Significant digits that the smallest figure keeps at least.
const SIGNIFICANT: usize = 2;
/// A figure that needs more decimals than this is written as a power of ten, and so are the figures beside it.
const MOST_DECIMALS: usize = 6;
/// From here on figures are written as powers of ten.
const LARGE: f64 = 1e6;

/// A ratio and the ends of its interval as text, all with the same number of decimals: two, or as many as the smallest
/// of them needs for two significant digits. So no figure but zero says 0.00, and the ratio lies within its interval as
/// printed whenever it does as measured.
///
/// Figures that are no numbers, which only a file from outside can hold, are written `unknown`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownRatio {
    /// `0.62×`
    pub ratio: String,
    /// `0.58–0.66`, where there is an interval.
    pub interval: Option<String>,
}

impl ShownRatio {
    /// `ends`: the lower and the upper end of the interval; `None` for a single shot.
    pub fn new(ratio: f64, ends: Option<(f64, f64)>) -> ShownRatio {
        let form = match ends {
            Some((low, high)) => Form::of(&[ratio, low, high]),
            None => Form::of(&[ratio]),
        };
        let sign = if ratio.is_finite() { "×" } else { "" };
        ShownRatio { ratio: format!("{}{sign}", form.text(ratio)), interval: ends.map(|ends| form.interval(ends)) }
    }
}

impl fmt::Display for ShownRatio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interval {
            Some(interval) => formatter.pad(&format!("{} ({interval})", self.ratio)),
            None => formatter.pad(&self.ratio),
        }
    }
}

/// `0.62× (0.58–0.66)`, with the interval to report.
impl fmt::Display for RatioEstimate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Interval { low, high } = *self.interval();
        ShownRatio::new(self.ratio, Some((low, high))).fmt(formatter)
    }
}

/// An interval that stands without its ratio: `0.58–0.66`.
pub fn interval_text(low: f64, high: f64) -> String {
    Form::of(&[low, high]).interval((low, high))
}

/// How figures that stand together are written.
#[derive(Clone, Copy)]
enum Form {
    Decimals(usize),
    PowerOfTen,
}

impl Form {
    fn of(figures: &[f64]) -> Form {
        let sizes = || figures.iter().map(|figure| figure.abs()).filter(|size| size.is_finite() && *size > 0.0);
        let decimals = sizes().map(decimals_of).fold(DECIMALS, usize::max);
        if decimals > MOST_DECIMALS || sizes().any(|size| size >= LARGE) {
            Form::PowerOfTen
        } else {
            Form::Decimals(decimals)
        }
    }

    fn text(self, figure: f64) -> String {
        match self {
            _ if !figure.is_finite() => "unknown".to_owned(),
            Form::Decimals(decimals) => format!("{figure:.decimals$}"),
            Form::PowerOfTen => format!("{figure:.DECIMALS$e}"),
        }
    }

    fn interval(self, (low, high): (f64, f64)) -> String {
        if low.is_finite() && high.is_finite() {
            format!("{}–{}", self.text(low), self.text(high))
        } else {
            "unknown".to_owned()
        }
    }
}

/// The decimals with which a figure above zero keeps its significant digits.
fn decimals_of(size: f64) -> usize {
    // The exponent after rounding: 0.0999 is 0.10, not 0.100.
    let rounded = format!("{size:.*e}", SIGNIFICANT - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or_default();
    usize::try_from(SIGNIFICANT as i32 - 1 - exponent).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pair, ratio};

    #[test]
    fn a_ratio_has_two_decimals_and_more_where_two_would_say_too_little() {
        let table = [
            (0.618, Some((0.58, 0.661)), "0.62× (0.58–0.66)"),
            (0.0581, Some((0.0418, 0.08)), "0.058× (0.042–0.080)"),
            (0.11, Some((0.0996, 0.121)), "0.11× (0.10–0.12)"),
            (12.0, Some((9.5, 15.125)), "12.00× (9.50–15.12)"),
            (0.5, Some((0.0004, 600.0)), "0.50000× (0.00040–600.00000)"),
            (1.0, Some((1e-9, 2e9)), "1.00e0× (1.00e-9–2.00e9)"),
            (0.0004, None, "0.00040×"),
            (0.000_012_3, None, "0.000012×"),
            (0.000_001_23, None, "1.23e-6×"),
            (999_999.0, None, "999999.00×"),
            (1e6, None, "1.00e6×"),
            (0.0, None, "0.00×"),
            (f64::NAN, None, "unknown"),
            (0.5, Some((0.4, f64::INFINITY)), "0.50× (unknown)"),
        ];
        for (ratio, ends, text) in table {
            assert_eq!(ShownRatio::new(ratio, ends).to_string(), text);
        }
        assert_eq!(interval_text(0.0418, 0.08), "0.042–0.080");
    }

    #[test]
    fn an_estimate_shows_the_interval_to_report_and_fills_a_column() {
        let pairs = [Pair { subject: 2.0, reference: 1.0 }; 3];
        let estimate = ratio(&pairs, 0.95, 1).unwrap();
        assert_eq!(estimate.to_string(), "2.00× (2.00–2.00)");
        assert_eq!(format!("{estimate:>20}|"), "   2.00× (2.00–2.00)|");
    }
}
