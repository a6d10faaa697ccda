//! Two plans side by side: what a change moves, refuses and costs.

use nearmetal_fleet::LevelValue;

use super::super::paint::{Ink, Page};
use super::{counts, heading, rest, table, would_fit};
use crate::fleet::{Details, FleetReport};
use crate::text::{count, grouped};
use crate::view::fleet::{Difference, difference};

/// What the second plan does otherwise.
pub(crate) fn fleet_what_if(before: &FleetReport<'_>, after: &FleetReport<'_>, details: &Details) -> String {
    let mut page = Page::new(details.style);
    let found = difference(before.plan(), after.plan());
    page.wrapped(&verdict(&found), Ink::Strong, 0);
    page.wrapped(&format!("as it is: {} · {}", before.view.headline, counts(&before.view.totals)), Ink::Plain, 0);
    page.wrapped(&format!("what if:  {} · {}", after.view.headline, counts(&after.view.totals)), Ink::Plain, 0);
    refused(&mut page, &found, details);
    lines(
        &mut page,
        "Placed now",
        found.placed.iter().map(|(vm, place)| format!("✓ {vm}: {place}")),
        Ink::Good,
        details,
    );
    let moved = found.moved.iter().map(|(vm, from, to)| format!("→ {vm}: {from} → {to}"));
    lines(&mut page, "In another place", moved, Ink::Found, details);
    let added = found.added.iter().map(|(vm, place)| format!("- {vm}: {place}"));
    lines(&mut page, "Only in the changed fleet", added, Ink::Plain, details);
    lines(&mut page, "No longer asked for", found.gone.iter().map(|vm| format!("- {vm}")), Ink::Quiet, details);
    levels(&mut page, &found);
    let (one, other) = (&before.view.totals, &after.view.totals);
    if (one.free_pus, one.free_memory) != (other.free_pus, other.free_memory) {
        heading(&mut page, "What is left");
        let left = |totals: &crate::view::fleet::Totals| {
            let pus = count(totals.free_pus as usize, "PU");
            let cores = count(totals.free_cores as usize, "whole core");
            format!("{pus} ({cores}), {} of memory", totals.free_memory)
        };
        page.wrapped(&format!("as it is: {}", left(one)), Ink::Plain, 2);
        page.wrapped(&format!("what if:  {}", left(other)), Ink::Plain, 2);
    }
    page.finish()
}

fn verdict(found: &Difference) -> String {
    let mut parts = Vec::new();
    let mut add = |number: usize, words: &str| {
        if number > 0 {
            parts.push(format!("{} {words}", count(number, "VM")));
        }
    };
    add(found.refused.len(), "without a place that had one");
    add(found.placed.len(), "placed that had no place");
    add(found.moved.len(), "in another place");
    add(found.added.len(), "more asked for");
    add(found.gone.len(), "no longer asked for");
    add(found.same, "where they are");
    if found.refused.is_empty() && found.moved.is_empty() && found.placed.is_empty() && found.levels.is_empty() {
        parts.insert(0, "nothing changes for the others".to_owned());
    }
    format!("What if: {}", parts.join(", "))
}

fn refused(page: &mut Page, found: &Difference, details: &Details) {
    if found.refused.is_empty() {
        return;
    }
    heading(page, "Refused now");
    let shown = details.shown(found.refused.len());
    for (vm, refusal) in &found.refused[..shown] {
        page.wrapped(&format!("✗ {vm}: {}", refusal.reason), Ink::Bad, 2);
        let remedy = refusal.remedy.as_ref().map(|remedy| (remedy.host.as_str(), remedy.change.as_str()));
        would_fit(page, remedy);
    }
    rest(page, found.refused.len() - shown, "");
}

fn lines(page: &mut Page, words: &str, all: impl ExactSizeIterator<Item = String>, ink: Ink, details: &Details) {
    let count = all.len();
    if count == 0 {
        return;
    }
    heading(page, words);
    let shown = details.shown(count);
    for line in all.take(shown) {
        page.wrapped(&line, ink, 2);
    }
    rest(page, count - shown, "");
}

fn levels(page: &mut Page, found: &Difference) {
    heading(page, "Levels that changed: the first decides, less is better");
    if found.levels.is_empty() {
        page.wrapped("none", Ink::Plain, 2);
        return;
    }
    let value = |level: &Option<LevelValue>| match level {
        None => "not asked".to_owned(),
        Some(level) if level.is_proven() => grouped(level.value as f64),
        // What is not proven may be the search's fault rather than the change's.
        Some(level) => format!("{} (bound {})", grouped(level.value as f64), grouped(level.bound as f64)),
    };
    let rows = found.levels.iter().enumerate().map(|(position, (id, before, after))| {
        let more = before.map_or(0, |level| level.value) < after.map_or(0, |level| level.value);
        // Levels below the first that changed are of plans that differ above: less there is no gain.
        let (word, ink) = match (position, more) {
            (0, true) => ("worse", Ink::Bad),
            (0, false) => ("better", Ink::Good),
            (_, true) => ("more", Ink::Quiet),
            (_, false) => ("less", Ink::Quiet),
        };
        vec![(id.words(), Ink::Plain), (value(before), Ink::Plain), (value(after), Ink::Plain), (word.to_owned(), ink)]
    });
    let heads = [("level", false), ("as it is", true), ("what if", true), ("", false)];
    table(&heads, rows.collect(), &[(0, 16)]).draw(page);
}
