//! Pools to grow, the objective, and what is left of the nodes.

use std::collections::BTreeMap;

use nearmetal_units::PageSize;

use super::super::paint::{Ink, Page};
use super::{heading, rest, table};
use crate::fleet::Details;
use crate::text::{count, grouped, one_line};
use crate::view::fleet::{FleetView, NodeRow};

pub(super) fn pools(page: &mut Page, view: &FleetView, details: &Details) {
    if view.pools.is_empty() {
        return;
    }
    heading(page, "Pools to grow before the VMs start");
    let shown = details.shown(view.pools.len());
    if view.pools.len() > shown {
        let mut sizes: BTreeMap<PageSize, (usize, u64)> = BTreeMap::new();
        for pool in &view.pools {
            let entry = sizes.entry(pool.size).or_default();
            *entry = (entry.0 + 1, entry.1 + pool.add);
        }
        for (size, (nodes, pages)) in sizes {
            let words = format!("- {} more {size} pages, over {}", grouped(pages as f64), count(nodes, "node"));
            page.wrapped(&words, Ink::Plain, 2);
        }
    }
    for pool in &view.pools[..shown] {
        let pages = if pool.add == 1 { "page" } else { "pages" };
        let words =
            format!("→ {} node {}: {} more {} {pages}", pool.host, pool.node, grouped(pool.add as f64), pool.size);
        page.wrapped(&words, Ink::Planned, 2);
    }
    rest(page, view.pools.len() - shown, "pools");
}

pub(super) fn levels(page: &mut Page, view: &FleetView) {
    heading(page, "How good it is: levels in the order they count, less is better");
    let rows = view.levels.iter().map(|level| {
        let (sign, ink) = if level.proven { ("✓", Ink::Good) } else { ("?", Ink::Unsure) };
        vec![
            (level.words.clone(), Ink::Plain),
            (level.value.clone(), Ink::Plain),
            (level.bound.clone(), Ink::Plain),
            (format!("{sign} {}", level.verdict), ink),
        ]
    });
    let heads = [("level", false), ("reached", true), ("no plan is below", true), ("best?", false)];
    table(&heads, rows.collect(), &[(0, 16), (3, 12), (2, 8)]).draw(page);
}

pub(super) fn nodes(page: &mut Page, view: &FleetView, details: &Details) {
    let totals = &view.totals;
    heading(page, "What is left");
    let cores = count(totals.free_cores as usize, "whole core");
    page.wrapped(
        &format!(
            "{} of {} free ({cores}), {} of {} memory",
            grouped(totals.free_pus as f64),
            count(totals.pus as usize, "PU"),
            totals.free_memory,
            totals.memory
        ),
        Ink::Plain,
        2,
    );
    if totals.stranded_nodes > 0 {
        let mut parts = Vec::new();
        if totals.stranded_memory.get() > 0 {
            parts.push(format!("{} of memory where no PU is left", totals.stranded_memory));
        }
        if totals.stranded_pus > 0 {
            parts.push(format!("{} where no memory is left", count(totals.stranded_pus as usize, "PU")));
        }
        let nodes = count(totals.stranded_nodes, "node");
        page.wrapped(&format!("stranded on {nodes}: {}", parts.join(", ")), Ink::Unsure, 2);
    }
    // A few nodes are shown in the hosts' order; of many only what is stranded is worth a row.
    let whole = details.all || view.nodes.len() <= details.rows;
    let nodes: Vec<(&NodeRow, usize)> =
        if whole { view.nodes.iter().map(|node| (node, 0)).collect() } else { view.stranded() };
    let shown = details.shown(nodes.len());
    if shown == 0 {
        return;
    }
    if !whole {
        page.wrapped("nodes with the largest part stranded first:", Ink::Quiet, 2);
    }
    let rows = nodes[..shown].iter().map(|(node, others)| {
        let others = if *others > 0 { format!(" +{} alike", grouped(*others as f64)) } else { String::new() };
        let memory = match node.pages.is_empty() {
            true => node.free_memory.to_string(),
            false => format!("{} ({})", node.free_memory, node.pages),
        };
        vec![
            (one_line(&node.host), Ink::Plain),
            (format!("{}{others}", node.node), Ink::Plain),
            (format!("{} of {}", node.free_pus, node.pus), Ink::Plain),
            (node.free_cores.to_string(), Ink::Plain),
            (node.largest_l3.to_string(), Ink::Plain),
            (memory, Ink::Plain),
            (node.stranded.clone().unwrap_or_else(|| "-".to_owned()), Ink::Unsure),
        ]
    });
    let heads = [
        ("host", false),
        ("node", false),
        ("free PUs", true),
        ("whole cores", true),
        ("PUs in one L3", true),
        ("free memory", true),
        ("stranded", false),
    ];
    table(&heads, rows.collect(), &[(6, 12), (5, 10), (4, 8), (3, 6), (0, 8)]).draw(page);
    rest(page, nodes.len() - shown, if whole { "nodes" } else { "kinds of nodes" });
}
