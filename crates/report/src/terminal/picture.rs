//! A host as boxes of characters: one box a node, as many side by side as the terminal is wide.

use nearmetal_units::Bytes;

use super::paint::{Ink, Page, Style};
use crate::text::{one_line, shorten};
use crate::view::{HostMap, MapMemory, MapNode, MapPu};

/// A box's inside, at least and at most.
const NARROWEST: usize = 30;
const WIDEST: usize = 46;
/// Devices a box shows; the rest is counted.
const DEVICES_SHOWN: usize = 6;

type Line = Vec<(String, Ink)>;

/// The picture; no line is wider than `style.width` (40 at least).
pub fn host_picture(map: &HostMap, style: &Style) -> String {
    let mut page = Page::new(*style);
    page.wrapped(&map.name, Ink::Strong, 0);
    page.wrapped(&map.counts, Ink::Plain, 0);
    if !map.about.is_empty() {
        page.wrapped(&map.about, Ink::Quiet, 0);
    }
    page.blank();
    let columns = (page.width() / (NARROWEST + 5)).clamp(1, map.nodes.len().max(1));
    let inside = (page.width() / columns).saturating_sub(5).clamp(NARROWEST, WIDEST);
    for row in map.nodes.chunks(columns) {
        let boxes: Vec<Vec<Line>> = row.iter().map(|node| contents(node, inside)).collect();
        draw_row(&mut page, row, &boxes, inside);
    }
    if !map.strays.is_empty() {
        let names: Vec<_> = map.strays.iter().map(|device| format!("{} {}", device.name, device.address)).collect();
        page.wrapped(&format!("node unknown: {}", shorten(&names.join(", "), 400)), Ink::Quiet, 0);
    }
    legend(&mut page, map);
    page.finish()
}

fn draw_row(page: &mut Page, row: &[MapNode], boxes: &[Vec<Line>], inside: usize) {
    let height = boxes.iter().map(Vec::len).max().unwrap_or(0);
    let mut top = Line::new();
    for node in row {
        let title = shorten(&title(node), inside);
        let rest = "─".repeat(inside - title.chars().count());
        top.extend([("┌ ".to_owned(), Ink::Quiet), (title, Ink::Strong), (format!(" {rest}┐ "), Ink::Quiet)]);
    }
    page.line(&top);
    for line in 0..height {
        let mut whole = Line::new();
        for lines in boxes {
            let empty = Line::new();
            let pieces = lines.get(line).unwrap_or(&empty);
            let used: usize = pieces.iter().map(|(text, _)| text.chars().count()).sum();
            whole.push(("│ ".to_owned(), Ink::Quiet));
            whole.extend(pieces.iter().cloned());
            whole.push((" ".repeat(inside.saturating_sub(used) + 1), Ink::Plain));
            whole.push(("│ ".to_owned(), Ink::Quiet));
        }
        page.line(&whole);
    }
    let bottom: String = row.iter().map(|_| format!("└{}┘ ", "─".repeat(inside + 2))).collect();
    page.line(&[(bottom, Ink::Quiet)]);
}

fn title(node: &MapNode) -> String {
    let name = node.index.map_or("no node".to_owned(), |index| format!("node {index}"));
    let packages: Vec<_> = node.packages.iter().map(ToString::to_string).collect();
    match packages.len() {
        0 => name,
        1 => format!("{name} · socket {}", packages[0]),
        _ => format!("{name} · sockets {}", packages.join(",")),
    }
}

fn contents(node: &MapNode, inside: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    if node.domains.is_empty() {
        lines.push(vec![("no PUs: memory only".to_owned(), Ink::Quiet)]);
    }
    for domain in &node.domains {
        lines.extend(cores(domain, inside));
    }
    lines.extend(memory(&node.memory, inside));
    for device in node.devices.iter().take(DEVICES_SHOWN) {
        let vfs = if device.vfs > 0 { format!(" {} VFs", device.vfs) } else { String::new() };
        let room = inside.saturating_sub(device.address.len() + vfs.len() + 3);
        let name = shorten(&one_line(&device.name), room);
        lines.push(vec![
            ("├ ".to_owned(), Ink::Quiet),
            (name, Ink::Plain),
            (format!(" {}{vfs}", device.address), Ink::Quiet),
        ]);
    }
    if node.devices.len() > DEVICES_SHOWN {
        lines.push(vec![(format!("├ and {} more", node.devices.len() - DEVICES_SHOWN), Ink::Quiet)]);
    }
    lines
}

/// One L3 domain: `L3 ·· ·· AA`, PUs of a core together, over as many lines as it needs.
fn cores(domain: &[Vec<MapPu>], inside: usize) -> Vec<Line> {
    let mut lines: Vec<Line> = vec![vec![("L3 ".to_owned(), Ink::Quiet)]];
    let mut used = 3;
    for core in domain {
        if used + core.len() > inside && used > 3 {
            lines.push(vec![("   ".to_owned(), Ink::Plain)]);
            used = 3;
        }
        if let Some(line) = lines.last_mut() {
            line.extend(core.iter().map(pu));
            line.push((" ".to_owned(), Ink::Plain));
        }
        used += core.len() + 1;
    }
    lines
}

fn pu(pu: &MapPu) -> (String, Ink) {
    match pu.owners.first() {
        _ if !pu.online => ("-".to_owned(), Ink::Quiet),
        Some((guest, _)) => (HostMap::letter(*guest).to_string(), ink(*guest)),
        None => ("o".to_owned(), Ink::Plain),
    }
}

fn ink(guest: usize) -> Ink {
    [Ink::Planned, Ink::Found, Ink::Good, Ink::Bad][guest % 4]
}

/// A bar and its figures. Letters are guests' pages, `▓` used hugepages, `▒` free ones, `█` other use, `░` free.
fn memory(memory: &MapMemory, inside: usize) -> Vec<Line> {
    let Some(total) = memory.total else { return vec![vec![("memory unknown".to_owned(), Ink::Quiet)]] };
    let (huge_free, huge_used) = memory.huge();
    let mut parts: Vec<(char, Ink, Bytes)> =
        memory.guests.iter().map(|(guest, amount)| (HostMap::letter(*guest), ink(*guest), *amount)).collect();
    parts.push(('▓', Ink::Plain, huge_used));
    parts.push(('▒', Ink::Plain, huge_free));
    if let Some(free) = memory.free {
        let known = parts.iter().fold(free, |sum, (_, _, amount)| sum.plus(*amount));
        parts.push(('█', Ink::Plain, total.less(known)));
    }
    let mut bar = Line::new();
    let mut left = inside;
    for (letter, ink, amount) in parts.into_iter().filter(|(.., amount)| *amount > Bytes::ZERO) {
        let share = amount.get() as f64 / total.get().max(1) as f64;
        let cells = ((share * inside as f64).round() as usize).max(1).min(left);
        left -= cells;
        bar.push((letter.to_string().repeat(cells), ink));
    }
    let rest = if memory.free.is_some() || memory.total == Some(Bytes::ZERO) { "░" } else { "?" };
    bar.push((rest.repeat(left), Ink::Quiet));
    let free = memory.free.map_or("free: ?".to_owned(), |free| format!("{free} free"));
    let pools = memory.pools_text();
    let mut lines = vec![bar, vec![(shorten(&format!("{total}, {free}"), inside), Ink::Plain)]];
    if !pools.is_empty() {
        lines.push(vec![(shorten(&format!("free pages: {pools}"), inside), Ink::Plain)]);
    }
    lines
}

fn legend(page: &mut Page, map: &HostMap) {
    let mut words = vec!["o PU, - offline PU; PUs of a core stand together".to_owned()];
    for (number, name) in map.guests.iter().enumerate() {
        let floats = if map.floating.contains(&number) { " (floats)" } else { "" };
        words.push(format!("{} {}{floats}", HostMap::letter(number), one_line(name)));
    }
    words.push("memory: ░ free, █ in use, ▒ free hugepages, ▓ hugepages in use, ? not told".to_owned());
    for line in words {
        page.wrapped(&line, Ink::Quiet, 0);
    }
}
