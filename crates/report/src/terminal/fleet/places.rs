//! VMs: those with a place, those without, those better not pinned.

use std::collections::BTreeMap;

use super::super::paint::{Ink, Page};
use super::{THE_REST, heading, names, rest, table, would_fit};
use crate::fleet::Details;
use crate::text::{count, grouped, one_line};
use crate::view::fleet::{FleetView, PlacedVm, RefusedVm, alike_refused as alike, reasons};

/// Names in one sentence.
const NAMES: usize = 12;

pub(super) fn placed(page: &mut Page, view: &FleetView, details: &Details) {
    if view.placed.is_empty() {
        return;
    }
    heading(page, "Where each VM goes");
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
        heading(page, "Why there");
        for (reason, vms) in why_counted(&view.placed) {
            page.wrapped(&format!("- {}: {reason}", count(vms, "VM")), Ink::Plain, 2);
        }
    } else {
        heading(page, "Why there, and what the next best place would have cost");
        view.placed.iter().for_each(|vm| why(page, vm));
    }
    let moved: Vec<&PlacedVm> = view.placed.iter().filter(|vm| vm.from.is_some()).collect();
    if !moved.is_empty() {
        heading(page, "VMs that run and are to be moved");
        let shown = details.shown(moved.len());
        for vm in &moved[..shown] {
            let from = vm.from.as_deref().unwrap_or_default();
            page.wrapped(&format!("- {}: from {from} to {}", vm.vm, vm.place), Ink::Found, 2);
        }
        rest(page, moved.len() - shown, "");
    }
}

fn why(page: &mut Page, vm: &PlacedVm) {
    page.wrapped(&format!("{} on {}", vm.vm, vm.place), Ink::Strong, 2);
    page.wrapped(&vm.reasons.join("; "), Ink::Plain, 4);
    page.wrapped(&format!("second best: {}", vm.second), Ink::Quiet, 4);
}

/// Reasons without the nodes' numbers, and how many VMs have each, the most frequent first.
fn why_counted(placed: &[PlacedVm]) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in placed.iter().flat_map(|vm| &vm.reasons) {
        *counts.entry(without_numbers(reason)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, vms)| std::cmp::Reverse(*vms));
    counts
}

/// `node 3 holds all …` and `nodes 0, 1: …` differ by number alone, and are one reason.
fn without_numbers(reason: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in reason.split_whitespace() {
        let bare = word.trim_end_matches([',', ':', ';']);
        let number = !bare.is_empty() && bare.chars().all(|c| c.is_ascii_digit());
        match words.last_mut() {
            Some(last) if number && ["node", "nodes"].contains(&last.as_str()) => {
                *last = if last == "node" { "one node".to_owned() } else { "several nodes".to_owned() };
            }
            Some(last) if number && last.starts_with("several") => {}
            _ if number => words.push("several".to_owned()),
            _ => words.push(word.to_owned()),
        }
        if number && word.ends_with(':') {
            words.extend([":".to_owned()]);
        }
    }
    words.join(" ").replace(" :", ":")
}

pub(super) fn refused(page: &mut Page, view: &FleetView, details: &Details) {
    if view.refused.is_empty() {
        return;
    }
    let vcpus: u64 = view.refused.iter().map(|vm| vm.vcpus).sum();
    let (vms, vcpus) = (count(view.refused.len(), "VM"), count(vcpus as usize, "vCPU"));
    heading(page, &format!("Not placed: {vms}, {vcpus}"));
    let whole = details.shown(view.refused.len()) == view.refused.len();
    if !whole {
        for row in reasons(&view.refused) {
            let vcpus = count(row.vcpus as usize, "vCPU");
            page.wrapped(&format!("- {}, {vcpus}: {}", count(row.vms, "VM"), row.reason), Ink::Unsure, 2);
        }
        let curable = view.refused.iter().filter(|vm| vm.remedy.is_some()).count();
        page.wrapped(
            &format!("for {} a single change of one host would place one of them:", count(curable, "VM")),
            Ink::Plain,
            2,
        );
    }
    let alike = if whole { view.refused.iter().map(|vm| (vm, 0)).collect() } else { alike(&view.refused) };
    let shown = details.shown(alike.len());
    for (vm, others) in &alike[..shown] {
        refusal(page, vm, *others);
    }
    rest(page, alike.len() - shown, "kinds of VMs");
    if !whole && shown == alike.len() {
        page.wrapped(THE_REST, Ink::Quiet, 2);
    }
}

fn refusal(page: &mut Page, vm: &RefusedVm, others: usize) {
    let others = if others > 0 { format!(" and {} alike", grouped(others as f64)) } else { String::new() };
    let asks = if vm.asks.is_empty() { String::new() } else { format!(" ({})", vm.asks) };
    page.wrapped(&format!("✗ {}{others}{asks}: {}", vm.vm, vm.reason), Ink::Bad, 2);
    would_fit(page, vm.remedy.as_ref().map(|(host, change)| (host.as_str(), change.as_str())));
}

pub(super) fn floating(page: &mut Page, view: &FleetView, details: &Details) {
    if view.floating.is_empty() {
        return;
    }
    heading(page, "Leave floating");
    for row in &view.floating {
        let shown = if details.all { row.vms.len() } else { NAMES };
        let all = names(row.vms.iter().map(String::as_str), shown);
        page.wrapped(&format!("- {all}: {}", row.reason), Ink::Plain, 2);
    }
}
