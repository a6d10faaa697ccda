//! A ratio and its interval as a line of characters.

use crate::text::finite;
use crate::view::{Bounds, ComparisonView};

/// `···╟─◆─╢····│··`: the interval, the ratio (hollow for a single shot), the line at 1. Zero is at the left edge,
/// `largest` at the right one.
pub(super) fn bar(row: &ComparisonView, largest: f64, length: usize) -> String {
    if length == 0 {
        return String::new();
    }
    let at = |ratio: f64| ((ratio / largest).clamp(0.0, 1.0) * (length - 1) as f64).round() as usize;
    let mut cells = vec![' '; length];
    cells[at(1.0)] = '│';
    if let Some(Bounds { low, high }) = row.interval.filter(|ends| ends.low.is_finite() && ends.high.is_finite()) {
        let (low, high) = (at(low.min(high)), at(high.max(low)));
        cells[low..=high].fill('─');
        cells[low] = '╟';
        cells[high] = '╢';
    }
    if let Some(ratio) = finite(row.ratio) {
        cells[at(ratio)] = if row.single_shot { '◇' } else { '◆' };
    }
    cells.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratio: Option<f64>, interval: Option<(f64, f64)>) -> ComparisonView {
        ComparisonView {
            metric: String::new(),
            subject: String::new(),
            reference: String::new(),
            n: 6,
            subject_value: None,
            reference_value: None,
            ratio,
            interval: interval.map(|(low, high)| Bounds { low, high }),
            confidence: 0.95,
            method: String::new(),
            bootstrap: None,
            pair_ratios: vec![],
            verdict: String::new(),
            single_shot: interval.is_none(),
        }
    }

    #[test]
    fn a_bar_shows_ratio_interval_and_the_line_at_one() {
        assert_eq!(bar(&row(Some(0.5), Some((0.4, 0.6))), 1.0, 11), "    ╟◆╢   │");
        assert_eq!(bar(&row(Some(0.5), None), 1.0, 11), "     ◇    │");
        assert_eq!(bar(&row(None, None), 1.0, 5), "    │");
        assert_eq!(bar(&row(Some(f64::NAN), Some((f64::NAN, 9e99))), 1.0, 3), "  │");
        assert_eq!(bar(&row(Some(1.0), None), 1.0, 0), "");
    }
}
