//! The parts of the terminal's report.

use super::bar::bar;
use super::paint::{Ink, Page};
use super::table::Table;
use crate::slice_text::slice_rows;
use crate::text::{LAB_WORDS, UNKNOWN, count, finite, interval, one_line, ratio, shown, value};
use crate::view::{ArmRole, CheckOutcome, CheckRow, ComparisonView, JobReport, MemorySide};

/// What the VM occupied, and what it occupies now.
pub(super) fn slices(page: &mut Page, view: &JobReport) {
    page.heading("Where it runs");
    let rows = slice_rows(view).into_iter().map(|row| {
        let ink = if row.before == row.after { Ink::Plain } else { Ink::Planned };
        vec![(row.subject, Ink::Plain), (row.before, Ink::Plain), (row.after, ink)]
    });
    let columns = [("", false), ("as found", false), ("as placed", false)];
    Table {
        columns: columns.map(|(head, right)| (head.to_owned(), right)).to_vec(),
        rows: rows.collect(),
        elastic: vec![(1, 18), (2, 24)],
    }
    .draw(page);
}

/// How many checks hold; those that do not, one by one.
pub(super) fn checks(page: &mut Page, heading: &str, held_words: &str, rows: &[CheckRow]) {
    if rows.is_empty() {
        return;
    }
    page.heading(heading);
    let held = rows.iter().filter(|row| row.outcome == CheckOutcome::Ok).count();
    let (sign, ink) = match rows.iter().any(|row| row.outcome == CheckOutcome::Mismatch) {
        true => ("✗", Ink::Bad),
        false if held == rows.len() => ("✓", Ink::Good),
        false => ("?", Ink::Unsure),
    };
    page.wrapped(&format!("{sign} {held} of {} {held_words}", rows.len()), ink, 2);
    for row in rows.iter().filter(|row| row.outcome != CheckOutcome::Ok) {
        let found = row.found.as_deref().unwrap_or("unknown");
        let (word, ink) = match row.outcome {
            CheckOutcome::Mismatch => ("differs", Ink::Bad),
            _ => ("cannot tell", Ink::Unsure),
        };
        let detail = row.detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
        page.wrapped(&format!("{}: {word}; planned: {}; found: {found}{detail}", row.subject, row.planned), ink, 4);
    }
}

/// Every metric's arms.
pub(super) fn arms(page: &mut Page, view: &JobReport) {
    let mut metrics: Vec<&str> = Vec::new();
    for row in &view.comparisons {
        if !metrics.contains(&row.metric.as_str()) {
            metrics.push(&row.metric);
        }
    }
    // The headline's metric first: it is what the reader came for.
    metrics.sort_by_key(|metric| view.headline_metric.as_deref() != Some(*metric));
    let single = |metric: &str| view.comparisons.iter().filter(|row| row.metric == metric).all(|row| row.single_shot);
    for metric in metrics.iter().filter(|metric| !single(metric)) {
        let rows: Vec<_> = view.comparisons.iter().filter(|row| row.metric == *metric).collect();
        draw_metric(page, view, metric, &rows);
    }
    single_shots(page, view, &metrics.into_iter().filter(|metric| single(metric)).collect::<Vec<_>>());
}

/// What was measured once, in one table: no interval, no bar.
fn single_shots(page: &mut Page, view: &JobReport, metrics: &[&str]) {
    if metrics.is_empty() {
        return;
    }
    let lab = if view.is_lab() { format!(" — {LAB_WORDS}") } else { String::new() };
    page.blank();
    page.wrapped(&format!("Single shots: no interval, no claim{lab}"), Ink::Strong, 0);
    let of = |metric: &&str| view.comparisons.iter().filter(|row| row.metric == *metric).collect::<Vec<_>>();
    let cells = |row: &ComparisonView| {
        let metric = view.metric(&row.metric);
        let unit = metric.map_or("", |metric| metric.unit.as_str());
        vec![
            (metric.map_or(row.metric.clone(), |metric| one_line(&metric.label)), Ink::Plain),
            (arm_name(view, &row.subject), arm_ink(view, &row.subject)),
            (arm_name(view, &row.reference), Ink::Plain),
            (format!("{} {unit}", or_mark(value(row.subject_value))), Ink::Plain),
            (or_mark(ratio(row.ratio)), Ink::Plain),
        ]
    };
    let heads = [("measured", false), ("arm", false), ("against", false), ("value", true), ("ratio", true)];
    Table {
        columns: heads.map(|(head, right)| (head.to_owned(), right)).to_vec(),
        rows: metrics.iter().flat_map(of).map(cells).collect(),
        elastic: vec![(0, 12), (1, 10), (2, 8)],
    }
    .draw(page);
}

pub(super) fn arm_name(view: &JobReport, id: &str) -> String {
    view.arm(id).map_or(id.to_owned(), |arm| one_line(&arm.name))
}

pub(super) fn arm_ink(view: &JobReport, id: &str) -> Ink {
    match view.arm(id).map(|arm| arm.role) {
        Some(ArmRole::Planned) => Ink::Planned,
        Some(ArmRole::AsFound) => Ink::Found,
        _ => Ink::Plain,
    }
}

/// In tables an unknown figure is a question mark.
fn or_mark(text: String) -> String {
    if text == UNKNOWN { "?".to_owned() } else { text }
}

fn draw_metric(page: &mut Page, view: &JobReport, metric: &str, rows: &[&ComparisonView]) {
    let facts = view.metric(metric);
    let mut heading = facts.map_or(metric.to_owned(), |facts| facts.label.clone());
    if facts.is_some_and(|facts| !facts.higher_is_better) {
        heading.push_str(", less is better");
    }
    if view.is_lab() {
        heading.push_str(&format!(" — {LAB_WORDS}"));
    }
    page.blank();
    page.wrapped(&heading, Ink::Strong, 0);
    let values = rows.iter().flat_map(|row| row.ratio.into_iter().chain(row.interval.map(|ends| ends.high)));
    // A scale that ends on a round tenth can be written at its end.
    let largest = (values.filter(|value| value.is_finite()).fold(1.0, f64::max).min(1000.0) * 10.2).ceil() / 10.0;
    let unit = facts.map_or("value".to_owned(), |facts| facts.unit.clone());
    let cells = |row: &&ComparisonView| {
        let shown = shown(row.ratio, row.interval);
        let ends = match shown.interval {
            Some(ends) => or_mark(ends),
            None if row.single_shot => "single shot".to_owned(),
            None => "?".to_owned(),
        };
        vec![
            (arm_name(view, &row.subject), arm_ink(view, &row.subject)),
            (arm_name(view, &row.reference), Ink::Plain),
            (or_mark(value(row.subject_value)), Ink::Plain),
            (or_mark(shown.ratio), Ink::Strong),
            (ends, Ink::Plain),
            (row.n.to_string(), Ink::Plain),
        ]
    };
    let heads = [("arm", false), ("against", false), (&unit, true), ("ratio", true), ("interval", false), ("n", true)];
    let columns = heads.map(|(head, right)| (head.to_owned(), right)).to_vec();
    let mut table = Table { columns, rows: rows.iter().map(cells).collect(), elastic: vec![(1, 8), (0, 10)] };
    // The bar takes what is left, and goes before any figure does.
    let room = table.left_over(page).min(60);
    if room >= 12 {
        let scale = format!("0{:>rest$}", tick(largest), rest = room - 1);
        table.columns.push((scale, false));
        for (cells, row) in table.rows.iter_mut().zip(rows) {
            cells.push((bar(row, largest, room), arm_ink(view, &row.subject)));
        }
    }
    table.draw(page);
    let floor = view.noise_floor(metric);
    if let Some(floor) = floor {
        let ends = floor.bounds.map_or(UNKNOWN.to_owned(), interval);
        page.wrapped(&format!("noise floor {ends} ({})", count(floor.n as usize, "A/A pair")), Ink::Quiet, 2);
    }
}

/// The right end of a bar's scale.
fn tick(largest: f64) -> String {
    format!("{largest:.1}×")
}

/// Memory figures.
pub(super) fn memory(page: &mut Page, view: &JobReport) {
    let Some(memory) = view.memory.as_ref().filter(|memory| !memory.rows.is_empty()) else { return };
    page.heading("Memory");
    if let Some(label) = &memory.label {
        page.wrapped(label, Ink::Unsure, 2);
    }
    let number = |number: Option<f64>| finite(number).map_or("?".to_owned(), |number| value(Some(number)));
    let rows = memory.rows.iter().map(|row| {
        let side = match row.side {
            MemorySide::Bare => "bare metal",
            MemorySide::Guest => "guest",
        };
        let backing = row.backing.map_or(String::new(), |size| size.to_string());
        [
            side.to_owned(),
            row.page.to_string(),
            backing,
            number(row.median_ns),
            number(row.p99_ns),
            number(row.minimum_ns),
            number(row.bandwidth_mb_s),
            row.pattern.clone(),
        ]
        .map(|text| (text, Ink::Plain))
        .to_vec()
    });
    let heads = [
        ("side", false),
        ("pages", true),
        ("backed by", true),
        ("median ns", true),
        ("p99 ns", true),
        ("min ns", true),
        ("MB/s", true),
        ("access", false),
    ];
    Table {
        columns: heads.map(|(head, right)| (head.to_owned(), right)).to_vec(),
        rows: rows.collect(),
        elastic: vec![(7, 12)],
    }
    .draw(page);
}
