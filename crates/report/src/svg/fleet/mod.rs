//! Pictures of a fleet's plan: each host before and after, and the whole fleet at a glance.

mod layout;
mod legend;
mod memory;
mod node;
mod overview;

pub(crate) use overview::fleet_overview_svg;

use super::Surface;
use super::canvas::{Area, Canvas};
use crate::fleet::HOSTS_DRAWN;
use crate::text::{count, grouped, shorten};
use crate::view::fleet::{Alike, FleetView, HostSheet, OwnerKind, PuUse, SheetOwner};
use layout::{Layout, PANEL_HEAD, WIDTH};

/// Width of a small letter, at most as a rule: text cut by it stays inside its box in wide fonts too.
const LETTER: f64 = 5.9;
/// Space around a picture.
const MARGIN: f64 = 26.0;
/// VMs have this many colours; the seventh has the first one's, and another letter.
const COLOURS: usize = 6;
/// Hosts named as being alike; the rest is counted.
const NAMED: usize = 6;

/// Hosts before and after the plan, one below the other.
pub(crate) fn hosts_svg(view: &FleetView, groups: &[Alike], surface: Surface) -> String {
    let mut canvas = Canvas::new("fleet-hosts");
    let shown = &groups[..groups.len().min(HOSTS_DRAWN)];
    canvas.text(MARGIN, MARGIN + 18.0, "nm-title", &shorten(&format!("Plan: {}", view.headline), 96));
    let mut y = MARGIN + 40.0;
    canvas.text(MARGIN, y, "", &counts(view));
    if groups.len() > shown.len() {
        y += 20.0;
        canvas.text(MARGIN, y, "nm-bold", &left_out(groups, shown));
    }
    y += 16.0;
    for group in shown {
        y = host(&mut canvas, group, y);
    }
    y = legend::signs(&mut canvas, shown.iter().map(|group| &group.sheet), MARGIN, y + 6.0);
    let description: Vec<String> = shown.iter().map(|group| describe(&group.sheet)).collect();
    let size = (WIDTH + 2.0 * MARGIN, y + MARGIN);
    canvas.finish(size, "hosts of the fleet before and after the plan", &description.join(". "), surface)
}

/// One host, or one of many alike, for a page; `number` keeps names inside pictures of one page apart.
pub(crate) fn host_figure(group: &Alike, number: usize) -> String {
    let mut canvas = Canvas::new(&format!("fleet-host-{number}"));
    let y = host(&mut canvas, group, 0.0);
    let y = legend::signs(&mut canvas, std::iter::once(&group.sheet), MARGIN, y + 2.0);
    let title = format!("the host {} before and after the plan", group.sheet.name);
    canvas.finish((WIDTH + 2.0 * MARGIN, y + 10.0), &title, &describe(&group.sheet), Surface::Page)
}

/// What is not drawn, in words.
pub(crate) fn left_out(groups: &[Alike], shown: &[Alike]) -> String {
    let hosts = |groups: &[Alike]| groups.iter().map(|group| group.hosts.len()).sum::<usize>();
    let (all, drawn) = (hosts(groups), hosts(shown));
    format!(
        "{} of {} drawn, as {} (hosts that are alike and get the same are drawn once); {} not drawn: the overview has them",
        grouped(drawn as f64),
        count(all, "host"),
        count(shown.len(), "picture"),
        grouped((all - drawn) as f64)
    )
}

fn counts(view: &FleetView) -> String {
    let totals = &view.totals;
    let (placed, used) = (grouped(totals.placed as f64), grouped(totals.hosts_used as f64));
    let mut parts = vec![
        format!("{placed} of {} placed", count(totals.vms, "VM")),
        format!("{used} of {} in use", count(totals.hosts, "host")),
    ];
    if !view.refused.is_empty() {
        let names: Vec<&str> = view.refused.iter().take(NAMED).map(|vm| vm.vm.as_str()).collect();
        let more = view.refused.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {} more", grouped(more as f64)) } else { String::new() };
        parts.push(format!("not placed: {}{more}", names.join(", ")));
    }
    shorten(&parts.join(" · "), 190)
}

/// A host's head, its two panels and its owners; the end.
fn host(canvas: &mut Canvas, group: &Alike, y: f64) -> f64 {
    let sheet = &group.sheet;
    let layout = Layout::new(sheet);
    let x = MARGIN;
    canvas.line((x, y + 6.0), (x + WIDTH, y + 6.0), "nm-axis");
    let mut name = vec![("nm-bold nm-host-name", 0.0, shorten(&sheet.name, 48))];
    if group.hosts.len() > 1 {
        let others: Vec<&str> = group.hosts[1..].iter().take(NAMED).map(String::as_str).collect();
        let more = group.hosts.len() - 1 - others.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let words = format!(
            "and {} alike that get the same, drawn once: {}{more}",
            count(group.hosts.len() - 1, "host"),
            others.join(", ")
        );
        name.push(("nm-muted", 10.0, shorten(&words, 130)));
    }
    let parts: Vec<(&str, f64, &str)> =
        name.iter().map(|(class, space, text)| (*class, *space, text.as_str())).collect();
    canvas.parts(x, y + 28.0, &parts);
    canvas.text(x, y + 45.0, "nm-small", &shorten(&sheet.about, 210));
    let top = y + 56.0;
    let mut end = top + layout.panel_height;
    if sheet.is_unchanged() {
        panel(canvas, sheet, &layout, (x, top), true, "Before and after: the plan changes nothing here");
    } else {
        panel(canvas, sheet, &layout, (x, top), false, "Before");
        let second = if layout.beside { (x + WIDTH - layout.panel_width, top) } else { (x, end + 12.0) };
        panel(canvas, sheet, &layout, second, true, "After the plan");
        end = second.1 + layout.panel_height;
    }
    legend::owners(canvas, group, x, end + 6.0) + 14.0
}

/// The host at one of the two moments.
fn panel(canvas: &mut Canvas, sheet: &HostSheet, layout: &Layout, (x, y): (f64, f64), after: bool, words: &str) {
    canvas.text(x, y + 13.0, "nm-bold", words);
    let y = y + PANEL_HEAD;
    for (package, place) in sheet.packages.iter().zip(&layout.packages) {
        let frame = Area { x: x + place.frame.x, y: y + place.frame.y, ..place.frame };
        if !package.name.is_empty() {
            canvas.rect(frame, 9.0, "nm-package");
            canvas.text(frame.x + 9.0, frame.y + 13.0, "nm-small", &package.name);
        }
        for (node, area) in package.nodes.iter().zip(&place.nodes) {
            let area = Area { x: x + area.x, y: y + area.y, ..*area };
            node::draw(canvas, node, area, layout, &sheet.owners, after);
        }
    }
    if !sheet.strays.is_empty() {
        let y = y + layout.panel_height - PANEL_HEAD - layout.strays_height;
        canvas.text(x, y + 10.0, "nm-small", "devices whose node is not known");
        node::devices(canvas, &sheet.strays, (x, x + layout.panel_width), y + 13.0, &sheet.owners, after);
    }
}

/// The class of an owner's colour.
fn owner_class(owners: &[SheetOwner], owner: usize) -> String {
    match owners.get(owner).map(|owner| owner.kind) {
        Some(OwnerKind::Vm) => format!("nm-guest-{}", owner % COLOURS),
        _ => "nm-hugeused".to_owned(),
    }
}

fn label(owners: &[SheetOwner], owner: usize) -> &str {
    owners.get(owner).map_or("?", |owner| owner.label.as_str())
}

fn name(owners: &[SheetOwner], owner: usize) -> &str {
    owners.get(owner).map_or("?", |owner| owner.name.as_str())
}

/// A small square with an owner's label.
fn chip(canvas: &mut Canvas, owners: &[SheetOwner], owner: usize, x: f64, y: f64) {
    let area = Area { x, y, width: 14.0, height: 14.0 };
    canvas.rect(area, 2.5, &owner_class(owners, owner));
    let label = label(owners, owner);
    let class = if label.len() > 1 { "nm-onsmall" } else { "nm-own-letter" };
    canvas.text(x + 7.0, y + 10.6, class, label);
}

/// A host in words.
fn describe(sheet: &HostSheet) -> String {
    let mut sentences = vec![format!("{}: {}", sheet.name, sheet.about)];
    for (number, owner) in sheet.owners.iter().enumerate() {
        let on = |after: bool| {
            let nodes = sheet.nodes().filter_map(|node| {
                let pus = node.domains.iter().flatten().flatten();
                let own = |used: &PuUse| match used {
                    PuUse::Vcpu { owner, .. } | PuUse::Held(owner) => *owner == number,
                    _ => false,
                };
                let pus = pus.filter(|pu| own(pu.uses.at(after))).count();
                let floats = node.floats.at(after).iter().find(|(owner, _)| *owner == number);
                let node = node.index.unwrap_or_default();
                match (pus, floats) {
                    (0, None) => None,
                    (0, Some((_, vcpus))) => Some(format!("{vcpus} floating vCPUs on node {node}")),
                    (pus, _) => Some(format!("{} of node {node}", count(pus, "PU"))),
                }
            });
            let nodes: Vec<_> = nodes.collect();
            if nodes.is_empty() { "nothing".to_owned() } else { nodes.join(" and ") }
        };
        sentences.push(format!("{}: {} before, {} after", owner.name, on(false), on(true)));
    }
    sentences.join("; ")
}
