//! One guest over more and more NUMA nodes, or more and more tiles: a panel for each quantity, a line for each arm.

use super::canvas::Canvas;
use super::marker::{marker, spread};
use super::scale::{Scale, colour, tick_text};
use super::{Surface, Width};
use crate::terminal::wrap;
use crate::text::{capital, count, lab_words, shorten, value};
use crate::view::{ArmView, ByNodesView, JobReport, ModePoint, NodesQuantity};

/// Height of a panel's plot.
const PLOT: f64 = 132.0;
/// A panel's words above its plot, and its numbers of nodes below.
const ABOVE: f64 = 26.0;
const BELOW: f64 = 34.0;
const LEFT: f64 = 40.0;

/// A mode's place among the arms, which gives its shape, the arm, and its points with the place of their number of nodes.
struct Line<'a> {
    place: usize,
    arm: &'a ArmView,
    points: Vec<(usize, &'a ModePoint)>,
}

/// Where a panel's parts stand.
struct Frame {
    top: f64,
    right: f64,
    ticks: Vec<f64>,
    /// How far the modes are apart at one number of nodes: equal values must not hide one another.
    step: f64,
    arms: usize,
    /// Longest name, characters.
    room: usize,
}

/// What the numbers below the panels count, and the words for it.
struct Words {
    id: &'static str,
    one: &'static str,
    many: &'static str,
    title: String,
    foot: &'static str,
}

/// The chart over numbers of nodes; `None` if the report has none, or no figure is in it.
pub fn by_nodes_svg(view: &JobReport, surface: Surface) -> Option<String> {
    by_nodes_chart(view, surface, Width::Wide)
}

/// [`by_nodes_svg`] at either width.
pub(crate) fn by_nodes_chart(view: &JobReport, surface: Surface, width: Width) -> Option<String> {
    let by_nodes = view.by_nodes.as_ref()?;
    let words = Words {
        id: "by-nodes",
        one: "node",
        many: "nodes",
        title: format!("One guest over more and more nodes: {}", by_nodes.load),
        foot: "over the number of nodes that the guest is spread over; shape: mean, bar: smallest to largest sample",
    };
    chart(view, by_nodes, &words, surface, width)
}

/// The chart over numbers of tiles; `None` if the report has none, or no figure is in it.
pub fn tiles_svg(view: &JobReport, surface: Surface) -> Option<String> {
    tiles_chart(view, surface, Width::Wide)
}

/// [`tiles_svg`] at either width.
pub(crate) fn tiles_chart(view: &JobReport, surface: Surface, width: Width) -> Option<String> {
    let over = &view.tiles.as_ref()?.over;
    let words = Words {
        id: "tiles",
        one: "tile",
        many: "tiles",
        title: format!("More and more tiles: {}", over.load),
        foot: "over the number of tiles; shape: mean, bar: smallest to largest sample",
    };
    chart(view, over, &words, surface, width)
}

fn chart(view: &JobReport, by_nodes: &ByNodesView, words: &Words, surface: Surface, width: Width) -> Option<String> {
    let panels: Vec<(&NodesQuantity, Vec<Line<'_>>)> = by_nodes
        .shown()
        .into_iter()
        .map(|quantity| (quantity, lines(view, by_nodes, quantity)))
        .filter(|(_, lines)| !lines.is_empty())
        .collect();
    if panels.is_empty() {
        return None;
    }
    let mut canvas = Canvas::new(&format!("{}{}", words.id, width.suffix()));
    let title = &words.title;
    let mut top = 0.0;
    if surface == Surface::Standalone {
        canvas.text(2.0, 16.0, "nm-bold", &shorten(title, 90));
        top = 30.0;
    }
    for (quantity, lines) in &panels {
        let frame = frame(by_nodes, view.arms.len(), top + ABOVE, width);
        heading(&mut canvas, quantity, view.is_lab(), top + 14.0);
        panel(&mut canvas, (by_nodes, words), quantity, lines, &frame);
        top += ABOVE + PLOT + BELOW;
    }
    let single =
        panels.iter().flat_map(|(_, lines)| lines).any(|line| line.points.iter().any(|point| point.1.samples < 2));
    let mut foot = words.foot.to_owned();
    if single {
        foot.push_str("; hollow: one sample");
    }
    let mut under = top + 14.0;
    for line in wrap(&foot, if width == Width::Wide { 120 } else { 62 }) {
        canvas.text(2.0, under, "nm-small", &line);
        under += 15.0;
    }
    Some(canvas.finish((width.units(), under - 6.0), title, &describe(&panels), surface))
}

fn lines<'a>(view: &'a JobReport, by_nodes: &ByNodesView, quantity: &'a NodesQuantity) -> Vec<Line<'a>> {
    let line = |(place, arm): (usize, &'a ArmView)| {
        let at = |(tick, nodes): (usize, &u32)| Some((tick, quantity.point(&arm.id, *nodes)?));
        let points: Vec<_> = by_nodes.nodes.iter().enumerate().filter_map(at).collect();
        (!points.is_empty()).then_some(Line { place, arm, points })
    };
    view.arms.iter().enumerate().filter_map(line).collect()
}

fn frame(by_nodes: &ByNodesView, arms: usize, top: f64, width: Width) -> Frame {
    // Right of the plot stand the names of the modes.
    let (names, step, room) = match width {
        Width::Wide => (168.0, 7.0, 20),
        Width::Narrow => (128.0, 4.0, 15),
    };
    let right = width.units() - names;
    let inset = step * arms as f64 / 2.0 + 10.0;
    let places = by_nodes.nodes.len();
    let across = |place: usize| match places {
        1 => (LEFT + right) / 2.0,
        _ => LEFT + inset + place as f64 * (right - LEFT - 2.0 * inset) / (places - 1) as f64,
    };
    Frame { top, right, ticks: (0..places).map(across).collect(), step, arms, room }
}

/// What the panel shows. Emulated time is said in grey.
fn heading(canvas: &mut Canvas, quantity: &NodesQuantity, lab: bool, y: f64) {
    let unit = quantity.unit_beside().map(|unit| format!("{}{unit}", scaled(quantity).1));
    let less = (!quantity.higher_is_better).then(|| "less is better".to_owned());
    let unit = unit.into_iter().chain(less).collect::<Vec<_>>().join(", ");
    let words = lab_words(quantity, lab).unwrap_or_default();
    let label = if quantity.emulated { "nm-muted" } else { "nm-bold" };
    let parts = [
        (label, 0.0, shorten(&capital(&quantity.label), 44)),
        ("nm-small nm-muted", 8.0, shorten(&unit, 40)),
        ("nm-small nm-muted", 8.0, words.to_owned()),
    ];
    let parts: Vec<_> = parts.iter().map(|(class, space, text)| (*class, *space, text.as_str())).collect();
    canvas.parts(2.0, y, &parts);
}

/// What the axis counts in: beyond thousands its numbers would not fit beside it.
fn scaled(quantity: &NodesQuantity) -> (f64, &'static str) {
    // Where the unit is not written out, there is no room for the word.
    if quantity.unit_beside().is_none() {
        return (1.0, "");
    }
    let points = quantity.series.iter().flat_map(|series| &series.points);
    let largest =
        points.flat_map(|point| [point.mean, point.high]).filter(|value| value.is_finite()).fold(0.0, f64::max);
    match largest {
        largest if largest >= 2e9 => (1e9, "10⁹ "),
        largest if largest >= 2e6 => (1e6, "million "),
        largest if largest >= 2e3 => (1e3, "thousand "),
        _ => (1.0, ""),
    }
}

fn panel(
    canvas: &mut Canvas,
    (by_nodes, words): (&ByNodesView, &Words),
    quantity: &NodesQuantity,
    lines: &[Line<'_>],
    frame: &Frame,
) {
    let values =
        lines.iter().flat_map(|line| line.points.iter().flat_map(|(_, point)| [point.mean, point.low, point.high]));
    let bottom = frame.top + PLOT;
    let scale = Scale::of_values(values, bottom, frame.top);
    let (divisor, _) = scaled(quantity);
    for tick in scale.ticks() {
        let y = scale.at(tick);
        canvas.line((LEFT, y), (frame.right, y), if tick == 0.0 { "nm-axis" } else { "nm-grid" });
        let number = tick / divisor;
        let text = if number >= 1e5 { format!("{number:.1e}") } else { tick_text(number) };
        canvas.text(LEFT - 8.0, y + 4.0, "nm-small nm-end", &text);
    }
    for (x, nodes) in frame.ticks.iter().zip(&by_nodes.nodes) {
        canvas.text(*x, bottom + 15.0, "nm-small nm-middle", &nodes.to_string());
    }
    canvas.text(frame.right + 8.0, bottom + 15.0, "nm-small", words.many);
    for line in lines {
        draw(canvas, (quantity, words), line, &scale, frame);
    }
    names(canvas, quantity, lines, &scale, frame);
}

/// Classes of a mode's line, whisker and shape: the arm's colour, or grey for emulated time.
fn classes(line: &Line<'_>, emulated: bool) -> [String; 3] {
    let tone = colour(Some(line.arm.role));
    match emulated {
        true => ["nm-series nm-axis", "nm-whisker nm-axis", "nm-muted"].map(str::to_owned),
        false => {
            [format!("nm-series nm-stroke-{tone}"), format!("nm-whisker nm-stroke-{tone}"), format!("nm-fill-{tone}")]
        }
    }
}

fn draw(
    canvas: &mut Canvas,
    (quantity, words): (&NodesQuantity, &Words),
    line: &Line<'_>,
    scale: &Scale,
    frame: &Frame,
) {
    let aside = (line.place as f64 - (frame.arms.saturating_sub(1)) as f64 / 2.0) * frame.step;
    let at = |(tick, point): &(usize, &ModePoint)| (frame.ticks[*tick] + aside, scale.at(point.mean));
    let path: Vec<_> = line.points.iter().map(at).collect();
    let [series, whisker, fill] = classes(line, quantity.emulated);
    canvas.polyline(&path, &series);
    for ((_, point), (x, y)) in line.points.iter().zip(&path) {
        let nodes = count(point.nodes as usize, words.one);
        canvas.open(&format!(
            "{}, {nodes}: {} {} ({}–{}, {})",
            line.arm.name,
            value(Some(point.mean)),
            quantity.unit,
            value(Some(point.low)),
            value(Some(point.high)),
            count(point.samples as usize, "sample")
        ));
        canvas.line((*x, scale.at(point.low)), (*x, scale.at(point.high)), &whisker);
        let hollow = if quantity.emulated { "nm-kept".to_owned() } else { series.replace("nm-series", "nm-hollow") };
        marker(canvas, line.place, *x, *y, if point.samples < 2 { &hollow } else { &fill });
        canvas.close();
    }
}

/// Names at the ends of the lines, each behind its shape, pushed apart where lines end close together.
fn names(canvas: &mut Canvas, quantity: &NodesQuantity, lines: &[Line<'_>], scale: &Scale, frame: &Frame) {
    let end = |line: &Line<'_>| line.points.last().map_or(0.0, |(_, point)| scale.at(point.mean));
    let mut ends: Vec<(f64, &Line<'_>)> = lines.iter().map(|line| (end(line), line)).collect();
    spread(&mut ends, frame.top - 4.0, frame.top + PLOT - 6.0);
    for (y, line) in ends {
        let [_, _, fill] = classes(line, quantity.emulated);
        marker(canvas, line.place, frame.right + 13.0, y, &fill);
        let tone = colour(Some(line.arm.role));
        let class = if quantity.emulated { "nm-muted".to_owned() } else { format!("nm-bold nm-say-{tone}") };
        canvas.text(frame.right + 23.0, y + 4.0, &class, &shorten(&line.arm.name, frame.room));
    }
}

fn describe(panels: &[(&NodesQuantity, Vec<Line<'_>>)]) -> String {
    let line = |line: &Line<'_>| {
        let values: Vec<String> =
            line.points.iter().map(|(_, point)| format!("{} at {}", value(Some(point.mean)), point.nodes)).collect();
        format!("{} {}", line.arm.name, values.join(", "))
    };
    let panel = |(quantity, lines): &(&NodesQuantity, Vec<Line<'_>>)| {
        let each: Vec<String> = lines.iter().map(line).collect();
        format!("{}, {}: {}", quantity.label, quantity.unit, each.join("; "))
    };
    panels.iter().map(panel).collect::<Vec<_>>().join(". ")
}
