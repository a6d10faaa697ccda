//! Tiles: what each arm did with each number of them, and what it held.

use super::paint::{Ink, Page};
use super::sections::{arm_ink, arm_name};
use super::table::Table;
use crate::text::{LAB_WORDS, capital, one_line};
use crate::view::{JobReport, TilesRow};

/// The section, if this was measured.
pub(super) fn tiles(page: &mut Page, view: &JobReport) {
    let Some(tiles) = &view.tiles else { return };
    page.heading("More and more tiles");
    page.wrapped(&tiles.over.load, Ink::Plain, 2);
    if tiles.emulated {
        let words = format!("emulated, at {} times the usual rates: {LAB_WORDS}", tiles.scale);
        page.wrapped(&words, Ink::Quiet, 2);
    }
    page.blank();
    let columns = [
        ("tiles", true),
        ("arm", false),
        ("score", true),
        ("lowest–highest", true),
        ("quality of service", false),
        ("busy PUs", true),
    ];
    let columns = columns.map(|(name, right)| (name.to_owned(), right)).to_vec();
    let rows = tiles.rows.iter().map(|row| {
        let figure = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "?".to_owned(), |value| format!("{value:.digits$}"))
        };
        let range = row.range.map_or_else(|| "?".to_owned(), |range| format!("{:.1}–{:.1}", range.low, range.high));
        vec![
            (row.tiles.to_string(), Ink::Plain),
            (arm_name(view, &row.arm), arm_ink(view, &row.arm)),
            (figure(row.score, 1), Ink::Strong),
            (range, Ink::Plain),
            (quality(row), Ink::Plain),
            (figure(row.busy, 2), Ink::Plain),
        ]
    });
    Table { columns, rows: rows.collect(), elastic: vec![(4, 18)] }.draw(page);
    for row in &tiles.rows {
        let who = format!(
            "{}, {}",
            capital(&one_line(&arm_name(view, &row.arm))),
            crate::text::count(row.tiles as usize, "tile")
        );
        for words in row.worst.iter().chain(&row.least) {
            page.wrapped(&format!("- {who}: {}", one_line(words)), Ink::Quiet, 2);
        }
    }
    page.blank();
    for held in &tiles.held {
        let words = format!("{}: {}", capital(&arm_name(view, &held.arm)), one_line(&held.why));
        page.wrapped(&words, Ink::Plain, 2);
    }
}

fn quality(row: &TilesRow) -> String {
    let lost = if row.failed > 0 { format!("; {} without figures", row.failed) } else { String::new() };
    format!("{}{lost}", row.quality())
}
