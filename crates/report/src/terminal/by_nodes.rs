//! One guest over more and more NUMA nodes: every mode's means, its ratio to native, the papers' orders.

use super::paint::{Ink, Page};
use super::sections::{arm_ink, arm_name};
use super::table::Table;
use crate::orders::order_source;
use crate::text::{LAB_WORDS, capital, count, lab_words, one_line, value};
use crate::view::{ArmRole, ByNodesView, JobReport, NodesQuantity, RatioView};

/// The section, if this was measured.
pub(super) fn by_nodes(page: &mut Page, view: &JobReport) {
    let Some(by_nodes) = &view.by_nodes else { return };
    page.heading("Over more and more nodes");
    page.wrapped(&by_nodes.load, Ink::Plain, 2);
    for quantity in by_nodes.shown() {
        // Emulated time is said in grey.
        let ink = if quantity.emulated { Ink::Quiet } else { Ink::Strong };
        page.blank();
        page.wrapped(&heading(quantity, view.is_lab()), ink, 2);
        means(page, view, by_nodes, quantity);
    }
    if let Some(rate) = by_nodes.rate().filter(|rate| rate.is_paired()) {
        ratios(page, view, by_nodes, rate);
    }
    if !by_nodes.papers.is_empty() {
        page.heading("What a paper says of the order, and what was found here");
        if let Some((name, note)) = order_source() {
            page.wrapped(&format!("{name}. {note}"), Ink::Quiet, 2);
        }
        for order in &by_nodes.papers {
            page.wrapped(&format!("- {} (section {}). Here: {}", order.said, order.section, order.here), Ink::Plain, 2);
        }
    }
}

fn heading(quantity: &NodesQuantity, lab: bool) -> String {
    let mut heading = capital(&one_line(&quantity.label));
    if let Some(unit) = quantity.unit_beside() {
        heading.push_str(&format!(", {}", one_line(unit)));
    }
    if !quantity.higher_is_better {
        heading.push_str(", less is better");
    }
    if let Some(words) = lab_words(quantity, lab) {
        heading.push_str(&format!(" — {words}"));
    }
    heading
}

fn means(page: &mut Page, view: &JobReport, by_nodes: &ByNodesView, quantity: &NodesQuantity) {
    let cell = |arm: &str, nodes: u32| {
        quantity.point(arm, nodes).map_or_else(|| "?".to_owned(), |point| value(Some(point.mean)))
    };
    table(page, view, by_nodes, quantity, &cell);
}

/// Every mode's ratio to native, where there are two pairs or more.
fn ratios(page: &mut Page, view: &JobReport, by_nodes: &ByNodesView, rate: &NodesQuantity) {
    let ratio = |arm: &str, nodes: u32| -> Option<RatioView> { rate.point(arm, nodes)?.to_bare };
    let lab = if rate.emulated { format!(" — {LAB_WORDS}") } else { String::new() };
    page.blank();
    let ink = if rate.emulated { Ink::Quiet } else { Ink::Strong };
    page.wrapped(&format!("{}, as a ratio to native{lab}", capital(&one_line(&rate.label))), ink, 2);
    let cell = |arm: &str, nodes: u32| match ratio(arm, nodes) {
        Some(ratio) => ratio.to_string(),
        None if view.arm(arm).is_some_and(|arm| arm.role == ArmRole::Bare) => "1".to_owned(),
        None => "?".to_owned(),
    };
    table(page, view, by_nodes, rate, &cell);
}

/// A row for each mode, a column for each number of nodes.
fn table(
    page: &mut Page,
    view: &JobReport,
    by_nodes: &ByNodesView,
    quantity: &NodesQuantity,
    cell: &impl Fn(&str, u32) -> String,
) {
    let mut columns = vec![("mode".to_owned(), false)];
    columns.extend(by_nodes.nodes.iter().map(|nodes| (count(*nodes as usize, "node"), true)));
    let row = |id: &str| {
        let figures = by_nodes.nodes.iter().map(|nodes| (cell(id, *nodes), Ink::Plain));
        std::iter::once((arm_name(view, id), arm_ink(view, id))).chain(figures).collect::<Vec<_>>()
    };
    let rows = quantity.series.iter().map(|series| row(&series.arm)).collect();
    Table { columns, rows, elastic: vec![(0, 10)] }.draw(page);
}
