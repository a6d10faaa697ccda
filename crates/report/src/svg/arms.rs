//! The arms against bare metal: ratio, interval, every pair, the line at 1, the noise floor.

use super::canvas::{Area, Canvas};
use super::scale::{Scale, against_bare, colour, extent, tick_text};
use super::{Surface, Width};
use crate::text::{LAB_WORDS, count, interval, shorten, shown, value};
use crate::view::{ArmRole, Bounds, ComparisonView, JobReport, Metric};

/// Height of a row: a line of words and a strip.
const ROW: f64 = 74.0;
const STRIP: f64 = 40.0;
const TOP: f64 = 2.0;
const LEFT: f64 = 2.0;
const RIGHT: f64 = 12.0;

/// The chart of one metric; `None` if no arm was compared with bare metal in it.
pub fn arms_svg(view: &JobReport, metric: &str, surface: Surface) -> Option<String> {
    arms_chart(view, metric, surface, Width::Wide)
}

/// [`arms_svg`] at either width.
pub(crate) fn arms_chart(view: &JobReport, metric: &str, surface: Surface, width: Width) -> Option<String> {
    let rows = against_bare(view, metric);
    if rows.is_empty() {
        return None;
    }
    let facts = view.metric(metric);
    let scale = Scale::holding(rows.iter().flat_map(|row| extent(row)), LEFT, width.units() - RIGHT);
    let bottom = strip(rows.len() - 1).1;
    let mut canvas = Canvas::new(&format!("arms-{}{}", place_of(view, metric), width.suffix()));
    backdrop(&mut canvas, view, metric, &scale, rows.len());
    for (place, row) in rows.iter().enumerate() {
        draw_row(&mut canvas, view, row, facts, &scale, place);
    }
    axis(&mut canvas, view, metric, &rows, &scale, bottom);
    let mut foot = "ratio to bare metal on the same slice".to_owned();
    if facts.is_some_and(|metric| !metric.higher_is_better) {
        foot.push_str(", less is better");
    }
    canvas.text(LEFT, bottom + 58.0, "nm-small", &foot);
    if view.is_lab() {
        canvas.text(LEFT, bottom + 73.0, "nm-small", LAB_WORDS);
    }
    let label = facts.map_or(metric, |metric| metric.label.as_str());
    let title = format!("Arms against bare metal: {label}");
    Some(canvas.finish((width.units(), bottom + 80.0), &title, &describe(view, &rows), surface))
}

/// Metric ids come from outside and may not be fit for an XML id; their place in the list is.
fn place_of(view: &JobReport, metric: &str) -> usize {
    view.metrics.iter().position(|known| known.id == metric).unwrap_or(view.metrics.len())
}

fn describe(view: &JobReport, rows: &[&ComparisonView]) -> String {
    let line = |row: &&ComparisonView| {
        let name = view.arm(&row.subject).map_or(row.subject.as_str(), |arm| arm.name.as_str());
        format!("{name}: {}", shown(row.ratio, row.interval))
    };
    rows.iter().map(line).collect::<Vec<_>>().join("; ")
}

/// What every row's strip shows behind its marks. The strips are apart, so that no line runs through a label.
fn backdrop(canvas: &mut Canvas, view: &JobReport, metric: &str, scale: &Scale, rows: usize) {
    let floor = view.noise_floor(metric).and_then(|floor| floor.bounds);
    for row in 0..rows {
        let (top, bottom) = strip(row);
        canvas.rect(Area { x: LEFT, y: top, width: scale.end() - LEFT, height: bottom - top }, 0.0, "nm-strip");
        if let Some(bounds @ Bounds { low, high }) = floor {
            let area = Area { x: scale.at(low), y: top, width: scale.at(high) - scale.at(low), height: bottom - top };
            canvas.open(&format!("noise floor: two equal arms differ by {}", interval(bounds)));
            canvas.rect(area, 0.0, "nm-noise");
            canvas.close();
        }
        for tick in scale.ticks() {
            canvas.line((scale.at(tick), top), (scale.at(tick), bottom), "nm-grid");
        }
        canvas.line((scale.at(1.0), top), (scale.at(1.0), bottom), "nm-one");
    }
}

/// Upper and lower edge of a row's strip.
fn strip(row: usize) -> (f64, f64) {
    let top = TOP + row as f64 * ROW;
    (top + 24.0, top + 24.0 + STRIP)
}

fn axis(canvas: &mut Canvas, view: &JobReport, metric: &str, rows: &[&ComparisonView], scale: &Scale, bottom: f64) {
    for tick in scale.ticks() {
        let anchor = if tick == 0.0 { "nm-small" } else { "nm-small nm-middle" };
        canvas.text(scale.at(tick), bottom + 15.0, anchor, &tick_text(tick));
    }
    // Each comparison has its own runs of bare metal; the planned arm's are those the headline speaks of.
    let planned = view.arm_of(ArmRole::Planned).map(|arm| arm.id.as_str());
    let row = rows.iter().find(|row| Some(row.subject.as_str()) == planned).or(rows.first());
    let unit = view.metric(metric).map_or("", |metric| metric.unit.as_str());
    let words = match row.and_then(|row| row.reference_value) {
        Some(bare) => format!("bare metal {} {unit}", value(Some(bare))),
        None => "bare metal".to_owned(),
    };
    let one = scale.at(1.0);
    let (x, class) = if one > scale.end() / 2.0 { (one + 5.0, "nm-end nm-bold") } else { (one - 5.0, "nm-bold") };
    canvas.text(x, bottom + 36.0, class, &words);
    canvas.line((one, bottom + 18.0), (one, bottom + 24.0), "nm-one");
}

fn draw_row(
    canvas: &mut Canvas,
    view: &JobReport,
    row: &ComparisonView,
    metric: Option<&Metric>,
    scale: &Scale,
    place: usize,
) {
    let arm = view.arm(&row.subject);
    let tone = colour(arm.map(|arm| arm.role));
    let name = shorten(arm.map_or(row.subject.as_str(), |arm| arm.name.as_str()), 40);
    let (top, bottom) = strip(place);
    let middle = top + (bottom - top) * 0.4;
    let shown = shown(row.ratio, row.interval);
    let ends = shown.interval.as_deref().unwrap_or_default();
    let unit = metric.map_or("", |metric| metric.unit.as_str());
    let often = if row.single_shot { "single shot".to_owned() } else { count(row.n as usize, "pair") };
    let bold = format!("nm-bold nm-say-{tone}");
    let absolute = format!("{} {unit}, {often}", value(row.subject_value));
    let parts = [
        (bold.as_str(), 0.0, name.as_str()),
        (&bold, 9.0, &shown.ratio),
        ("", 9.0, ends),
        ("nm-muted", 14.0, &absolute),
    ];
    canvas.parts(LEFT, top - 7.0, &parts);
    canvas.open(&format!("{name}: {shown}, {often}"));
    for (position, pair) in row.pair_ratios.iter().enumerate().filter(|(_, pair)| pair.is_finite()) {
        // Apart by turns, so that equal pairs do not hide one another.
        let apart = [0.0, -3.5, 3.5][position % 3];
        canvas.circle(scale.at(*pair), middle + 16.0 + apart, 2.4, &format!("nm-pair nm-fill-{tone}"));
    }
    if let Some(Bounds { low, high }) = row.interval {
        let (low, high) = (scale.at(low), scale.at(high));
        let class = format!("nm-whisker nm-stroke-{tone}");
        canvas.line((low, middle), (high, middle), &class);
        canvas.line((low, middle - 6.0), (low, middle + 6.0), &class);
        canvas.line((high, middle - 6.0), (high, middle + 6.0), &class);
    }
    let x = scale.at(row.ratio.unwrap_or_default());
    let diamond = [(x, middle - 7.5), (x + 7.5, middle), (x, middle + 7.5), (x - 7.5, middle)];
    let class = if row.single_shot { format!("nm-hollow nm-stroke-{tone}") } else { format!("nm-fill-{tone}") };
    canvas.polygon(&diamond, &class);
    canvas.close();
}
