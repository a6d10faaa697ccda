//! The ratio over request sizes; what was measured once is drawn hollow.

use nearmetal_units::Bytes;

use super::canvas::Canvas;
use super::marker::{marker, spread};
use super::scale::{Scale, against_bare, colour, extent, tick_text};
use super::{Surface, Width};
use crate::text::{LAB_WORDS, ratio, shorten};
use crate::view::{ArmView, Bounds, ComparisonView, JobReport, Metric};

const LEFT: f64 = 34.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 250.0;

/// One point: place of its size, and the comparison.
type Point<'a> = (usize, &'a ComparisonView);

/// The chart over the sizes that the headline's load was measured at, in its unit; `None` with fewer than two sizes.
pub fn sizes_svg(view: &JobReport, surface: Surface) -> Option<String> {
    sizes_chart(view, surface, Width::Wide)
}

/// [`sizes_svg`] at either width.
pub(crate) fn sizes_chart(view: &JobReport, surface: Surface, width: Width) -> Option<String> {
    let headline = view.metric(view.headline_metric.as_deref()?)?;
    let (unit, of) = (&headline.unit, label_without_size(headline)?);
    let mut sized: Vec<(Bytes, &str)> = view
        .metrics
        .iter()
        .filter(|metric| metric.unit == *unit && label_without_size(metric).as_ref() == Some(&of))
        .filter_map(|metric| Some((metric.request_size?, metric.id.as_str())))
        .filter(|(_, id)| !against_bare(view, id).is_empty())
        .collect();
    sized.sort();
    sized.dedup_by_key(|(size, _)| *size);
    if sized.len() < 2 {
        return None;
    }
    let series = |arm: &'_ ArmView| -> Vec<Point<'_>> {
        let point = |(place, (_, metric)): (usize, &(Bytes, &str))| {
            Some((place, against_bare(view, metric).into_iter().find(|row| row.subject == arm.id)?))
        };
        sized.iter().enumerate().filter_map(point).collect()
    };
    let all: Vec<_> = view.arms.iter().map(|arm| (arm, series(arm))).filter(|(_, points)| !points.is_empty()).collect();
    let values = all.iter().flat_map(|(_, points)| points.iter().flat_map(|(_, row)| extent(row)));
    let scale = Scale::holding(values, BOTTOM, TOP);
    let mut canvas = Canvas::new(&format!("sizes{}", width.suffix()));
    // Right of the plot stand the names of the arms.
    let right = width.units() - 128.0;
    let inset = if width == Width::Wide { 30.0 } else { 18.0 };
    let across = |place: usize| LEFT + inset + place as f64 * (right - LEFT - 2.0 * inset) / (sized.len() - 1) as f64;
    axes(
        &mut canvas,
        &scale,
        right,
        sized.iter().enumerate().map(|(place, (size, _))| (across(place), size.to_string())),
    );
    for (position, (arm, points)) in all.iter().enumerate() {
        draw_series(&mut canvas, arm, points, position, &across, &scale);
    }
    labels(&mut canvas, &all, &scale, right);
    let single = all.iter().any(|(_, points)| points.iter().any(|(_, row)| row.single_shot));
    foot(&mut canvas, view, unit, single);
    let title = format!("Ratio to bare metal over request sizes, {unit}");
    Some(canvas.finish((width.units(), BOTTOM + 76.0), &title, &describe(&all), surface))
}

/// What a metric is of, whatever the size of its requests: its label without the size. `None` if it has no size.
fn label_without_size(metric: &Metric) -> Option<String> {
    Some(metric.label.replacen(&metric.request_size?.to_string(), "", 1))
}

fn describe(all: &[(&ArmView, Vec<Point<'_>>)]) -> String {
    let line = |(arm, points): &(&ArmView, Vec<Point<'_>>)| {
        let values: Vec<_> = points.iter().map(|(_, row)| ratio(row.ratio)).collect();
        format!("{}: {}", arm.name, values.join(", "))
    };
    all.iter().map(line).collect::<Vec<_>>().join("; ")
}

fn axes(canvas: &mut Canvas, scale: &Scale, right: f64, sizes: impl Iterator<Item = (f64, String)>) {
    for tick in scale.ticks() {
        let y = scale.at(tick);
        canvas.line((LEFT, y), (right, y), "nm-grid");
        canvas.text(LEFT - 8.0, y + 4.0, "nm-small nm-end", &tick_text(tick));
    }
    for (x, size) in sizes {
        canvas.text(x, BOTTOM + 17.0, "nm-small nm-middle", &size);
    }
    let one = scale.at(1.0);
    canvas.line((LEFT, one), (right, one), "nm-one");
}

fn draw_series(
    canvas: &mut Canvas,
    arm: &ArmView,
    points: &[Point<'_>],
    position: usize,
    across: &impl Fn(usize) -> f64,
    scale: &Scale,
) {
    let tone = colour(Some(arm.role));
    let at = |(place, row): &Point<'_>| (across(*place), scale.at(row.ratio.unwrap_or_default()));
    let path: Vec<_> = points.iter().map(at).collect();
    canvas.polyline(&path, &format!("nm-series nm-stroke-{tone}"));
    for ((_, row), (x, y)) in points.iter().zip(&path) {
        let often = if row.single_shot { "single shot" } else { "with interval" };
        canvas.open(&format!("{}: {}, {often}", arm.name, ratio(row.ratio)));
        if let Some(Bounds { low, high }) = row.interval {
            let class = format!("nm-whisker nm-stroke-{tone}");
            canvas.line((*x, scale.at(low)), (*x, scale.at(high)), &class);
        }
        let class = if row.single_shot { format!("nm-hollow nm-stroke-{tone}") } else { format!("nm-fill-{tone}") };
        marker(canvas, position, *x, *y, &class);
        canvas.close();
    }
}

/// Names at the end of each line, each behind its shape; bare metal's line has none.
fn labels(canvas: &mut Canvas, all: &[(&ArmView, Vec<Point<'_>>)], scale: &Scale, right: f64) {
    let mut ends: Vec<(f64, Option<(usize, &ArmView)>)> = vec![(scale.at(1.0), None)];
    for (position, (arm, points)) in all.iter().enumerate() {
        let last = points.last().and_then(|(_, row)| row.ratio).unwrap_or_default();
        ends.push((scale.at(last), Some((position, *arm))));
    }
    spread(&mut ends, TOP, BOTTOM);
    for (y, arm) in ends {
        let Some((position, arm)) = arm else {
            canvas.text(right + 8.0, y + 4.0, "nm-bold", "bare metal");
            continue;
        };
        let tone = colour(Some(arm.role));
        marker(canvas, position, right + 13.0, y, &format!("nm-fill-{tone}"));
        canvas.text(right + 23.0, y + 4.0, &format!("nm-bold nm-say-{tone}"), &shorten(&arm.name, 15));
    }
}

fn foot(canvas: &mut Canvas, view: &JobReport, unit: &str, single: bool) {
    let single = if single { "hollow: single shot, no interval" } else { "" };
    let lab = if view.is_lab() { LAB_WORDS } else { "" };
    let lines = [&format!("ratio of {unit} to bare metal, by request size"), single, lab];
    for (line, words) in lines.into_iter().filter(|words| !words.is_empty()).enumerate() {
        canvas.text(LEFT, BOTTOM + 40.0 + line as f64 * 15.0, "nm-small", words);
    }
}
