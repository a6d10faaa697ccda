//! A matrix of arms against the default: one line an arm, its ratio and interval, the line at 1.

use nearmetal_stats::ShownRatio;

use super::canvas::{Area, Canvas};
use super::scale::{Scale, tick_text};
use super::{Surface, Width};
use crate::terminal::wrap;
use crate::text::{LAB_WORDS, shorten, shown};
use crate::view::Bounds;

const LEFT: f64 = 2.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 30.0;

/// How an arm is shown: by shape and word as well as by colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixMark {
    /// The winner: a filled diamond.
    Winner,
    /// The default, at 1.
    Default,
    /// Any other: a hollow diamond.
    Other,
}

/// One arm of a matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixRow {
    /// What a person calls it.
    pub name: String,
    /// Ratio to the default; `None` where it was not measured.
    pub ratio: Option<f64>,
    /// 95 % interval on the ratio.
    pub interval: Option<(f64, f64)>,
    /// A few words behind the name: `shown worse after 6 rounds`, `cannot win: …`.
    pub note: String,
    /// How it is marked.
    pub mark: MatrixMark,
}

/// The chart of a matrix, arms in the order given. `title` says of what guest and drive; `lab` that time was emulated.
pub fn matrix_svg(title: &str, rows: &[MatrixRow], lab: bool, surface: Surface) -> String {
    matrix_svg_of(title, "IOPS as a ratio to QEMU's default", rows, lab, surface)
}

/// The same, with the words of the axis given: what the ratio is of, and to what.
pub fn matrix_svg_of(title: &str, axis: &str, rows: &[MatrixRow], lab: bool, surface: Surface) -> String {
    let foot = format!("{axis} in the same rounds, 95 % interval of each arm alone");
    rows_chart(&Labels { id: "matrix", title, foot: &foot, headed: true }, rows, lab, surface, Width::Wide)
}

/// The words of a chart of rows.
pub(crate) struct Labels<'a> {
    /// Keeps names inside the drawing apart from those of others in a page.
    pub(crate) id: &'a str,
    /// What it shows.
    pub(crate) title: &'a str,
    /// What stands under the axis.
    pub(crate) foot: &'a str,
    /// Whether the title is drawn too; in a page the caption says it.
    pub(crate) headed: bool,
}

/// A line for each row at either width: its ratio and interval, the line at 1.
pub(crate) fn rows_chart(labels: &Labels<'_>, rows: &[MatrixRow], lab: bool, surface: Surface, width: Width) -> String {
    let values = rows.iter().flat_map(|row| row.ratio.into_iter().chain(row.interval.map(|(_, high)| high)));
    let scale = Scale::holding(values, LEFT, width.units() - RIGHT);
    // On a narrow screen the figures get a line of their own under the name.
    let height = if width == Width::Wide { 34.0 } else { 48.0 };
    let top = if labels.headed { TOP } else { 0.0 };
    let bottom = top + rows.len() as f64 * height;
    let mut canvas = Canvas::new(&format!("{}{}", labels.id, width.suffix()));
    if labels.headed {
        canvas.text(LEFT, 16.0, "nm-bold", &shorten(labels.title, 90));
    }
    for (place, row) in rows.iter().enumerate() {
        draw(&mut canvas, row, &scale, top + place as f64 * height, width);
    }
    for tick in scale.ticks() {
        let class = if tick == 0.0 { "nm-small" } else { "nm-small nm-middle" };
        canvas.text(scale.at(tick), bottom + 14.0, class, &tick_text(tick));
    }
    let mut under = bottom + 32.0;
    let room = if width == Width::Wide { 120 } else { 62 };
    for line in wrap(labels.foot, room) {
        canvas.text(LEFT, under, "nm-small", &line);
        under += 15.0;
    }
    if lab {
        canvas.text(LEFT, under, "nm-small", LAB_WORDS);
        under += 15.0;
    }
    let describe = |row: &MatrixRow| format!("{}: {}", row.name, shown_row(row).ratio);
    let description = rows.iter().map(describe).collect::<Vec<_>>().join("; ");
    canvas.finish((width.units(), under - 8.0), labels.title, &description, surface)
}

fn shown_row(row: &MatrixRow) -> ShownRatio {
    shown(row.ratio, row.interval.map(|(low, high)| Bounds { low, high }))
}

fn draw(canvas: &mut Canvas, row: &MatrixRow, scale: &Scale, top: f64, width: Width) {
    let tone = match row.mark {
        MatrixMark::Winner => "planned",
        MatrixMark::Default => "found",
        MatrixMark::Other => "other",
    };
    let strip = if width == Width::Wide { top + 16.0 } else { top + 30.0 };
    let middle = strip + 6.0;
    canvas.rect(Area { x: LEFT, y: strip, width: scale.end() - LEFT, height: 12.0 }, 0.0, "nm-strip");
    canvas.line((scale.at(1.0), strip), (scale.at(1.0), strip + 12.0), "nm-one");
    let shown = shown_row(row);
    let ends = shown.interval.as_deref().unwrap_or_default();
    let name = shorten(&row.name, 54);
    let bold = format!("nm-small nm-say-{tone}");
    let note = shorten(&row.note, 44);
    let figures =
        [("nm-small", 8.0, shown.ratio.as_str()), ("nm-small", 6.0, ends), ("nm-small nm-muted", 10.0, &note)];
    let named = (bold.as_str(), 0.0, name.as_str());
    match width {
        Width::Wide => canvas.parts(LEFT, strip - 3.0, &[&[named], &figures[..]].concat()),
        Width::Narrow => {
            canvas.parts(LEFT, strip - 17.0, &[named]);
            canvas.parts(LEFT, strip - 3.0, &figures);
        }
    }
    let Some(value) = row.ratio else { return };
    canvas.open(&format!("{}: {shown} {}", row.name, row.note));
    if let Some((low, high)) = row.interval {
        canvas.line((scale.at(low), middle), (scale.at(high), middle), &format!("nm-whisker nm-stroke-{tone}"));
    }
    let x = scale.at(value);
    let diamond = [(x, middle - 5.0), (x + 5.0, middle), (x, middle + 5.0), (x - 5.0, middle)];
    let class =
        if row.mark == MatrixMark::Other { format!("nm-hollow nm-stroke-{tone}") } else { format!("nm-fill-{tone}") };
    canvas.polygon(&diamond, &class);
    canvas.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_is_in_the_chart_and_hostile_names_do_not_break_it() {
        let row = |name: &str, ratio, mark| MatrixRow {
            name: name.to_owned(),
            ratio,
            interval: ratio.map(|ratio: f64| (ratio * 0.9, ratio * 1.1)),
            note: "shown worse".to_owned(),
            mark,
        };
        let rows = [
            row("block none/io_uring iothread", Some(1.9), MatrixMark::Winner),
            row("QEMU's default", Some(1.0), MatrixMark::Default),
            row("<script>&\u{1b}[31m", None, MatrixMark::Other),
            row("off the scale", Some(f64::INFINITY), MatrixMark::Other),
        ];
        let svg = matrix_svg("web1", &rows, true, Surface::Standalone);
        assert!(svg.contains("1.90") && svg.contains("lab: emulated time") && svg.contains("off the scale"));
        assert!(!svg.contains("<script>") && !svg.contains('\u{1b}') && !svg.contains("inf") && !svg.contains("NaN"));
        // Shown apart by shape: the winner's diamond is filled, another's hollow.
        assert!(svg.contains("nm-fill-planned") && svg.contains("nm-hollow nm-stroke-other"));
        assert!(!matrix_svg("web1", &rows, false, Surface::Page).contains("lab:"));
    }
}
