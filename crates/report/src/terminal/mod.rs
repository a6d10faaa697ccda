//! The report on a terminal: compact, at any width, with or without colour, down to ASCII.

mod bar;
mod by_nodes;
mod experiment;
mod fleet;
mod paint;
mod picture;
mod sections;
mod table;
mod tiles;
mod watch;

pub use experiment::experiment_text;
pub(crate) use fleet::{fleet_text, fleet_what_if};
pub use paint::Style;
pub(crate) use paint::wrap;
pub use picture::host_picture;
pub use watch::watch_picture;

use crate::headline::{headline, warnings};
use crate::text::{LAB_WORDS, duration, one_line};
use crate::view::JobReport;
use paint::{Ink, Page};

/// The report as text. Every line ends in a newline; no line is wider than `style.width` (40 at least).
pub fn terminal(view: &JobReport, style: &Style) -> String {
    let mut page = Page::new(*style);
    if view.sample_data {
        page.wrapped("SAMPLE DATA: every figure here is invented", Ink::Bad, 0);
    }
    let place = if view.is_lab() { LAB_WORDS } else { "silicon" };
    page.wrapped(
        &format!("{} · {} · nearmetal {} · {place}", view.title, view.created, view.nearmetal_version),
        Ink::Quiet,
        0,
    );
    page.blank();
    for warning in warnings(view) {
        page.wrapped(&one_line(&warning), Ink::Bad, 0);
        page.blank();
    }
    let headline = headline(view);
    page.wrapped(&headline.sentence(), Ink::Strong, 0);
    for line in &headline.below {
        page.wrapped(line, Ink::Plain, 0);
    }
    if let Some(quick) = &view.quick {
        page.wrapped(&format!("Quick mode: {}", quick.shortened.join(", ")), Ink::Unsure, 0);
    }
    sections::slices(&mut page, view);
    sections::checks(&mut page, "Read back", "as planned", &view.verification);
    sections::checks(&mut page, "Seen by the guest", "as planned", &view.guest_view);
    by_nodes::by_nodes(&mut page, view);
    tiles::tiles(&mut page, view);
    sections::arms(&mut page, view);
    sections::memory(&mut page, view);
    if let Some(rollback) = &view.rolled_back {
        sections::checks(&mut page, "Rolled back", "as before", &rollback.rows);
        let (words, ink) = match rollback.ok {
            true => ("The former state was found again", Ink::Good),
            false if rollback.is_partly() => ("All changes were undone, and not all is as before yet", Ink::Unsure),
            false => ("The former state was not found again", Ink::Bad),
        };
        page.wrapped(words, ink, 2);
    }
    if !view.stages.is_empty() {
        page.heading("Time");
        let stages: Vec<_> =
            view.stages.iter().map(|stage| format!("{} {}", one_line(&stage.name), duration(stage.seconds))).collect();
        page.wrapped(&stages.join(" · "), Ink::Plain, 2);
    }
    if !view.caveats.is_empty() {
        page.heading("Know before you trust a figure");
        for caveat in &view.caveats {
            page.wrapped(&format!("- {caveat}"), Ink::Plain, 2);
        }
    }
    page.finish()
}
