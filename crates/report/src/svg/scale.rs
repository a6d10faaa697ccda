//! A linear axis from zero: a ratio drawn on a cut axis misleads.

use crate::view::{ArmRole, Bounds, ComparisonView, JobReport};

/// Ratios beyond this are drawn at the edge: an axis that long shows nothing of the others.
const LARGEST: f64 = 1000.0;

/// Measured values beyond this are drawn at the edge: no quantity here comes near.
const LARGEST_VALUE: f64 = 1e18;

/// Maps ratios, or measured values, to coordinates.
pub(super) struct Scale {
    from: f64,
    to: f64,
    largest: f64,
}

impl Scale {
    /// An axis from `from` to `to` that holds all values and the ratio 1.
    pub(super) fn holding(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let largest = values.filter(|value| value.is_finite()).fold(1.0, f64::max).min(LARGEST);
        Self { from, to, largest: largest * 1.08 }
    }

    /// An axis from `from` to `to` that holds all measured values, of any unit.
    pub(super) fn of_values(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let largest = values.filter(|value| value.is_finite()).fold(0.0, f64::max).min(LARGEST_VALUE);
        Self { from, to, largest: if largest > 0.0 { largest * 1.08 } else { 1.0 } }
    }

    /// Where a ratio or value lies; outside values at the edge.
    pub(super) fn at(&self, ratio: f64) -> f64 {
        let share = if ratio.is_finite() { (ratio / self.largest).clamp(0.0, 1.0) } else { 0.0 };
        self.from + share * (self.to - self.from)
    }

    /// Where the axis ends.
    pub(super) fn end(&self) -> f64 {
        self.to
    }

    /// Round values along the axis, four to eight of them.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let raw = self.largest / 5.0;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|base| base * power).into_iter().find(|step| *step >= raw);
        let step = step.unwrap_or(10.0 * power);
        let count = (self.largest / step).floor() as u32;
        (0..=count).map(|index| f64::from(index) * step).collect()
    }
}

/// A tick's text: as many decimals as its step needs.
pub(super) fn tick_text(value: f64) -> String {
    let text = format!("{value:.2}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short.is_empty() { "0".to_owned() } else { short.to_owned() }
}

/// The colour of an arm: a suffix of the figure style's classes.
pub(super) fn colour(role: Option<ArmRole>) -> &'static str {
    match role {
        Some(ArmRole::Planned) => "planned",
        Some(ArmRole::AsFound) => "found",
        Some(ArmRole::Bare) => "bare",
        Some(ArmRole::Other) | None => "other",
    }
}

/// Comparisons of one metric with bare metal that have a ratio.
pub(super) fn against_bare<'a>(view: &'a JobReport, metric: &str) -> Vec<&'a ComparisonView> {
    let Some(bare) = view.arm_of(ArmRole::Bare) else { return Vec::new() };
    let fits = |row: &&ComparisonView| {
        row.metric == metric && row.reference == bare.id && row.ratio.is_some_and(f64::is_finite)
    };
    view.comparisons.iter().filter(fits).collect()
}

/// Everything of a comparison that the axis must hold.
pub(super) fn extent(row: &ComparisonView) -> impl Iterator<Item = f64> + '_ {
    let ends = row.interval.iter().flat_map(|Bounds { low, high }| [*low, *high]);
    row.ratio.into_iter().chain(ends).chain(row.pair_ratios.iter().copied())
}
