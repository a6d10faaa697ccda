//! The whole fleet at a glance: a tile a host with two bars, and what is not placed beside them.

use super::layout::WIDTH;
use super::{LETTER, MARGIN};
use crate::svg::Surface;
use crate::svg::canvas::{Area, Canvas};
use crate::terminal::wrap;
use crate::text::{count, grouped, shorten};
use crate::view::fleet::{FleetView, HostTile, alike_refused, reasons};

/// Width of the column of what is not placed, and the space before it.
const BESIDE: f64 = 300.0;
const BETWEEN: f64 = 30.0;
/// Room for a row's first name.
const ROW_NAME: f64 = 84.0;
/// Tiles drawn; further hosts are counted.
const TILES: usize = 2000;
/// Refused VMs named one by one; more are counted by reason.
const NAMED: usize = 10;
/// Reasons listed.
const REASONS: usize = 8;

/// Width and height of a tile, and the space between two.
fn tile_size(hosts: usize) -> (f64, f64, f64) {
    match hosts {
        0..=64 => (142.0, 62.0, 8.0),
        65..=250 => (86.0, 44.0, 6.0),
        _ => (31.0, 20.0, 3.0),
    }
}

/// The picture.
pub(crate) fn fleet_overview_svg(view: &FleetView, surface: Surface) -> String {
    let mut canvas = Canvas::new("fleet-overview");
    let room = if view.refused.is_empty() { WIDTH } else { WIDTH - BESIDE - BETWEEN };
    let mut y = MARGIN;
    if surface == Surface::Standalone {
        canvas.text(MARGIN, y + 18.0, "nm-title", &shorten(&format!("Plan: {}", view.headline), 96));
        y += 34.0;
    }
    let totals = &view.totals;
    let words = format!(
        "{} of {} placed · {} of {} in use · {} of {} and {} of {} memory left",
        grouped(totals.placed as f64),
        count(totals.vms, "VM"),
        grouped(totals.hosts_used as f64),
        count(totals.hosts, "host"),
        grouped(totals.free_pus as f64),
        count(totals.pus as usize, "PU"),
        totals.free_memory,
        totals.memory
    );
    canvas.text(MARGIN, y + 8.0, "", &words);
    let top = y + 24.0;
    let shown = &view.hosts[..view.hosts.len().min(TILES)];
    let (width, height, gap) = tile_size(shown.len());
    // Tiles too small for names have the first of each row before it.
    let indent = if height < 30.0 { ROW_NAME } else { 0.0 };
    let columns = (((room - indent + gap) / (width + gap)) as usize).max(1);
    for (number, host) in shown.iter().enumerate() {
        let (column, row) = (number % columns, number / columns);
        let (x, y) = (MARGIN + indent + column as f64 * (width + gap), top + row as f64 * (height + gap));
        if indent > 0.0 && column == 0 {
            canvas.text(MARGIN, y + height / 2.0 + 3.5, "nm-small", &shorten(&host.name, 14));
        }
        tile(&mut canvas, host, Area { x, y, width, height });
    }
    let mut bottom = top + shown.len().div_ceil(columns) as f64 * (height + gap);
    if view.hosts.len() > shown.len() {
        let words = format!("{} of {} drawn", grouped(TILES as f64), count(view.hosts.len(), "host"));
        canvas.text(MARGIN, bottom + 10.0, "nm-bold", &words);
        bottom += 18.0;
    }
    let mut beside = top;
    if !view.refused.is_empty() {
        beside = refusals(&mut canvas, view, MARGIN + room + BETWEEN, top);
    }
    let end = legend(&mut canvas, view, bottom.max(beside) + 8.0, height > 30.0);
    let description = format!("{words}; {} not placed", count(view.refused.len(), "VM"));
    canvas.finish((WIDTH + 2.0 * MARGIN, end + 14.0), "the fleet at a glance", &description, surface)
}

fn part(left: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| 1.0 - left as f64 / all as f64)
}

fn percent(part: Option<f64>) -> String {
    part.map_or("none".to_owned(), |part| format!("{:.0} %", part * 100.0))
}

fn tile(canvas: &mut Canvas, host: &HostTile, area: Area) {
    let pus = part(host.free_pus, host.pus);
    let memory = part(host.free_memory.get(), host.memory.get());
    let mut words =
        format!("{}: {}, PUs {} used, memory {} used", host.name, count(host.vms, "VM"), percent(pus), percent(memory));
    if host.stranded {
        words.push_str(", something stranded");
    }
    if host.nearest_for > 0 {
        words.push_str(&format!(", nearest to having room for {}", count(host.nearest_for, "refused VM")));
    }
    canvas.open(&words);
    let small = area.height < 30.0;
    canvas.rect(area, if small { 2.5 } else { 5.0 }, if host.vms > 0 { "nm-node" } else { "nm-offline" });
    let inside = area.grown(if small { -3.0 } else { -8.0 });
    let (bar, gap) = if small { (5.5, 3.0) } else { (8.0, 4.0) };
    let tall = 2.0 * bar + gap;
    let top = inside.y + inside.height - tall;
    let figures = if area.width > 120.0 { 40.0 } else { 0.0 };
    for (line, (part, class)) in [(pus, "nm-guest"), (memory, "nm-hugeused")].into_iter().enumerate() {
        let y = top + line as f64 * (bar + gap);
        let all = Area { x: inside.x, y, width: inside.width - figures, height: bar };
        canvas.rect(all, 1.5, "nm-bar");
        canvas.rect(Area { width: all.width * part.unwrap_or(0.0), ..all }, 1.5, class);
        if figures > 0.0 {
            canvas.text(inside.x + inside.width, y + bar, "nm-small nm-end", &percent(part));
        }
    }
    let sign = if host.stranded { "!" } else { "" };
    if small {
        if host.stranded {
            // A corner, because a letter would cover the bars.
            let (x, y) = (area.x + area.width, area.y);
            canvas.polygon(&[(x - 8.0, y), (x, y), (x, y + 8.0)], "nm-corner");
        }
    } else {
        let room = ((inside.width - 26.0) / 6.6) as usize;
        canvas.text(inside.x, inside.y + 10.0, "nm-bold", &shorten(&host.name, room));
        let right = if area.width > 120.0 {
            format!("{} {sign}", count(host.vms, "VM"))
        } else {
            format!("{} {sign}", host.vms)
        };
        canvas.text(inside.x + inside.width, inside.y + 10.0, "nm-small nm-end", right.trim_end());
    }
    canvas.close();
}

/// What is not placed, in a column; its end.
fn refusals(canvas: &mut Canvas, view: &FleetView, x: f64, y: f64) -> f64 {
    let vcpus: u64 = view.refused.iter().map(|vm| vm.vcpus).sum();
    let head = format!("Not placed: {}, {}", count(view.refused.len(), "VM"), count(vcpus as usize, "vCPU"));
    canvas.text(x, y + 10.0, "nm-bold", &head);
    let letters = (BESIDE / LETTER) as usize;
    let mut y = y + 28.0;
    let mut line = |canvas: &mut Canvas, class: &str, words: &str, indent: f64| {
        for line in wrap(words, letters - (indent / LETTER) as usize) {
            canvas.text(x + indent, y, class, &line);
            y += 14.0;
        }
        y += 2.0;
        y
    };
    if view.refused.len() > NAMED {
        let all = reasons(&view.refused);
        for row in all.iter().take(REASONS) {
            line(canvas, "nm-small", &format!("{}: {}", count(row.vms, "VM"), row.reason), 0.0);
        }
        if all.len() > REASONS {
            line(canvas, "nm-small", &format!("and {} more reasons", all.len() - REASONS), 0.0);
        }
        line(canvas, "nm-small nm-bold", "VMs that ask for the same and miss the same:", 0.0);
    }
    let alike = alike_refused(&view.refused);
    for (vm, others) in alike.iter().take(NAMED) {
        let others = if *others > 0 { format!(" and {} alike", grouped(*others as f64)) } else { String::new() };
        line(canvas, "", &format!("✗ {}{others}", shorten(&vm.vm, 30)), 0.0);
        line(canvas, "nm-small", &vm.asks, 12.0);
        let words = match &vm.remedy {
            Some((host, change)) => format!("→ would fit with, on {}: {change}", shorten(host, 24)),
            None => "no single change would place it".to_owned(),
        };
        line(canvas, "nm-small", &words, 12.0);
    }
    let rest = alike.len().saturating_sub(NAMED);
    if rest > 0 {
        line(canvas, "nm-small", &format!("and {} more kinds of VMs", grouped(rest as f64)), 0.0);
    }
    line(canvas, "", "", 0.0)
}

fn legend(canvas: &mut Canvas, view: &FleetView, y: f64, named: bool) -> f64 {
    let mut x = MARGIN;
    let mut entry = |canvas: &mut Canvas, class: &str, words: &str| {
        canvas.rect(Area { x, y, width: 14.0, height: 9.0 }, 1.5, class);
        canvas.text(x + 19.0, y + 8.6, "nm-small", words);
        x += 19.0 + words.chars().count() as f64 * LETTER + 14.0;
    };
    entry(canvas, "nm-guest", "upper bar: PUs given to VMs, of all to be given");
    entry(canvas, "nm-hugeused", "lower bar: memory given, pools included");
    if view.hosts.iter().any(|host| host.vms == 0) {
        entry(canvas, "nm-offline", "no VM");
    }
    if view.hosts.iter().any(|host| host.stranded) {
        let words = "something is stranded: PUs without memory, or memory without PUs";
        if named {
            canvas.text(x + 5.0, y + 8.6, "nm-bold", "!");
            canvas.text(x + 19.0, y + 8.6, "nm-small", words);
        } else {
            entry(canvas, "nm-corner", &format!("corner: {words}"));
        }
    }
    y + 16.0
}
