//! A fleet's plan on a terminal: what goes where and why, what does not, and how good the plan is.

mod left;
mod places;
mod what_if;

pub(crate) use what_if::fleet_what_if;

use super::paint::{Ink, Page};
use super::table::Table;
use crate::fleet::Details;
use crate::text::{count, grouped};
use crate::view::fleet::{FleetView, Totals};

/// Where the rest of a long table is.
const THE_REST: &str = "`--details` lists all, `--format json` has them as data";

/// The plan as text.
pub(crate) fn fleet_text(view: &FleetView, details: &Details) -> String {
    let mut page = Page::new(details.style);
    headline(&mut page, view);
    places::placed(&mut page, view, details);
    places::refused(&mut page, view, details);
    left::pools(&mut page, view, details);
    left::levels(&mut page, view);
    left::nodes(&mut page, view, details);
    places::floating(&mut page, view, details);
    heading(&mut page, "How it was searched");
    for line in &view.search {
        page.wrapped(line, Ink::Plain, 2);
    }
    if !view.assumptions.is_empty() {
        heading(&mut page, "Taken as given");
        let shown = details.shown(view.assumptions.len());
        for assumption in &view.assumptions[..shown] {
            page.wrapped(&format!("- {assumption}"), Ink::Plain, 2);
        }
        rest(&mut page, view.assumptions.len() - shown, "");
    }
    page.finish()
}

fn headline(page: &mut Page, view: &FleetView) {
    let totals = &view.totals;
    let ink = match (totals.placed == totals.vms, view.levels.iter().all(|level| level.proven)) {
        (true, true) => Ink::Good,
        _ => Ink::Strong,
    };
    page.wrapped(&format!("Plan: {}", view.headline), ink, 0);
    page.wrapped(&counts(totals), Ink::Plain, 0);
}

/// The fleet in a line.
pub(super) fn counts(totals: &Totals) -> String {
    let of = |part: usize, all: usize, noun: &str| format!("{} of {}", grouped(part as f64), count(all, noun));
    let mut parts = vec![
        format!("{} placed", of(totals.placed, totals.vms, "VM")),
        of(totals.vcpus_placed as usize, totals.vcpus as usize, "vCPU"),
        format!("{} in use", of(totals.hosts_used, totals.hosts, "host")),
    ];
    if totals.moved > 0 {
        parts.push(format!("{} to be moved", count(totals.moved, "running VM")));
    }
    parts.join(" · ")
}

/// A heading over as many lines as it needs.
fn heading(page: &mut Page, words: &str) {
    page.blank();
    page.wrapped(words, Ink::Strong, 0);
}

/// A table of plain columns; `right` columns hold figures.
fn table(heads: &[(&str, bool)], rows: Vec<Vec<(String, Ink)>>, elastic: &[(usize, usize)]) -> Table {
    Table {
        columns: heads.iter().map(|(head, right)| ((*head).to_owned(), *right)).collect(),
        rows,
        elastic: elastic.to_vec(),
    }
}

/// What was left out, and where it is.
fn rest(page: &mut Page, left_out: usize, what: &str) {
    if left_out > 0 {
        let space = if what.is_empty() { "" } else { " " };
        page.wrapped(&format!("and {} more{space}{what}: {THE_REST}", grouped(left_out as f64)), Ink::Quiet, 2);
    }
}

/// The smallest change that would place a VM: host and change.
fn would_fit(page: &mut Page, remedy: Option<(&str, &str)>) {
    match remedy {
        Some((host, change)) => page.wrapped(&format!("→ would fit with, on {host}: {change}"), Ink::Planned, 4),
        None => page.wrapped("no single change would place it", Ink::Quiet, 4),
    }
}

/// Names with commas, the first of many.
fn names<'a>(all: impl Iterator<Item = &'a str>, shown: usize) -> String {
    let all: Vec<&str> = all.collect();
    let first = all.iter().take(shown).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(shown) {
        0 => first,
        more => format!("{first} and {} more", grouped(more as f64)),
    }
}
