//! VMs: those with a place, those without, those better not pinned.

use std::collections::BTreeMap;

use super::super::paint::{Ink, Page};
use super::{names, rest, table};
use crate::fleet::Details;
use crate::text::{count, grouped, one_line};
use crate::view::fleet::{FleetView, PlacedVm, RefusedVm, reasons};

/// Names in one sentence.
const NAMES: usize = 12;

pub(super) fn placed(page: &mut Page, view: &FleetView, details: &Details) {
    if view.placed.is_empty() {
        return;
    }
    page.heading("Where each VM goes");
    let shown = details.shown(view.placed.len());
    let plain = |text: &str| (one_line(text), Ink::Plain);
    let row = |vm: &PlacedVm| {
        let devices = if vm.devices.is_empty() { "-" } else { &vm.devices };
        vec![
            (one_line(&vm.vm), Ink::Strong),
            plain(&vm.host),
            plain(&vm.nodes),
            plain(&vm.pus),
            plain(&vm.memory),
            plain(devices),
        ]
    };
    let heads =
        [("VM", false), ("host", false), ("nodes", false), ("PUs", false), ("memory", false), ("devices", false)];
    let rows = view.placed[..shown].iter().map(row).collect();
    table(&heads, rows, &[(5, 16), (3, 12), (4, 10), (0, 12), (1, 10)]).draw(page);
    rest(page, view.placed.len() - shown, "VMs");
    // Sentences for each of many VMs would bury the plan; counted they still say what kind of plan it is.
    if view.placed.len() > shown {
        page.heading("Why there");
        for (reason, vms) in why_counted(&view.placed) {
            page.wrapped(&format!("- {}: {reason}", count(vms, "VM")), Ink::Plain, 2);
        }
    } else {
        page.heading("Why there, and what the next best place would have cost");
        view.placed.iter().for_each(|vm| why(page, vm));
    }
    let moved: Vec<&PlacedVm> = view.placed.iter().filter(|vm| vm.from.is_some()).collect();
    if !moved.is_empty() {
        page.heading("VMs that run and are to be moved");
        let shown = details.shown(moved.len());
        for vm in &moved[..shown] {
            let from = vm.from.as_deref().unwrap_or_default();
            page.wrapped(&format!("- {}: from {from} to {} node {}", vm.vm, vm.host, vm.nodes), Ink::Found, 2);
        }
        rest(page, moved.len() - shown, "");
    }
}

fn why(page: &mut Page, vm: &PlacedVm) {
    page.wrapped(&format!("{} on {} node {}", vm.vm, vm.host, vm.nodes), Ink::Strong, 2);
    page.wrapped(&vm.reasons.join("; "), Ink::Plain, 4);
    page.wrapped(&format!("second best: {}", vm.second), Ink::Quiet, 4);
}

/// Reasons with nodes' numbers taken out, and how many VMs have each, the most frequent first.
pub(super) fn why_counted(placed: &[PlacedVm]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in placed.iter().flat_map(|vm| &vm.reasons) {
        // `node 3 holds all …` and `nodes 0, 1: …` differ by number alone.
        let kept = reason.split_whitespace().filter(|word| {
            let bare = word.trim_end_matches([',', ':', ';']);
            bare.is_empty() || !bare.chars().all(|c| c.is_ascii_digit())
        });
        *counts.entry(kept.collect::<Vec<_>>().join(" ")).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, vms)| std::cmp::Reverse(*vms));
    counts
}

pub(super) fn refused(page: &mut Page, view: &FleetView, details: &Details) {
    if view.refused.is_empty() {
        return;
    }
    let vcpus: u64 = view.refused.iter().map(|vm| vm.vcpus).sum();
    let (vms, vcpus) = (count(view.refused.len(), "VM"), count(vcpus as usize, "vCPU"));
    page.heading(&format!("Not placed: {vms}, {vcpus}"));
    let shown = details.shown(view.refused.len());
    if view.refused.len() > shown {
        for row in reasons(&view.refused) {
            let vcpus = count(row.vcpus as usize, "vCPU");
            page.wrapped(&format!("- {}, {vcpus}: {}", count(row.vms, "VM"), row.reason), Ink::Unsure, 2);
        }
        let curable = view.refused.iter().filter(|vm| vm.remedy.is_some()).count();
        let words =
            format!("for {} of them a single change of one host would do, for each its own:", grouped(curable as f64));
        page.wrapped(&words, Ink::Plain, 2);
    }
    for vm in &view.refused[..shown] {
        refusal(page, vm);
    }
    rest(page, view.refused.len() - shown, "VMs");
}

fn refusal(page: &mut Page, vm: &RefusedVm) {
    let asks = if vm.asks.is_empty() { String::new() } else { format!(" ({})", vm.asks) };
    page.wrapped(&format!("✗ {}{asks}: {}", vm.vm, vm.reason), Ink::Bad, 2);
    match &vm.remedy {
        Some((host, change)) => page.wrapped(&format!("→ would fit with, on {host}: {change}"), Ink::Planned, 4),
        None => page.wrapped("no single change would place it", Ink::Quiet, 4),
    }
}

pub(super) fn floating(page: &mut Page, view: &FleetView, details: &Details) {
    if view.floating.is_empty() {
        return;
    }
    page.heading("Leave floating");
    for row in &view.floating {
        let shown = if details.all { row.vms.len() } else { NAMES };
        let all = names(row.vms.iter().map(String::as_str), shown);
        page.wrapped(&format!("- {all}: {}", row.reason), Ink::Plain, 2);
    }
}
