//! One node's box.

use nearmetal_units::{Bytes, CpuSet};

use super::guest_class;
use super::layout::{DEVICE, DEVICES_SHOWN, Layout, MEMORY, NODE_HEAD, PADDING, SHEET};
use crate::svg::canvas::{Area, Canvas};
use crate::text::shorten;
use crate::view::{HostMap, MapDevice, MapMemory, MapNode, MapPu};

/// Draws a node into its place.
pub(super) fn draw(canvas: &mut Canvas, node: &MapNode, place: Area, layout: &Layout, guests: &[String]) {
    canvas.rect(place, 8.0, "nm-node");
    let (left, right) = (place.x + PADDING, place.x + place.width - PADDING);
    let name = node.index.map_or("no node".to_owned(), |index| format!("node {index}"));
    canvas.text(left, place.y + 17.0, "nm-bold", &name);
    let packages: Vec<_> = node.packages.iter().map(ToString::to_string).collect();
    let sockets = match packages.len() {
        0 => String::new(),
        1 => format!("socket {}", packages[0]),
        _ => format!("sockets {}", packages.join(", ")),
    };
    // Where tiles are too small for their numbers, the list of them stands above.
    let pus: CpuSet = node.domains.iter().flatten().flatten().map(|pu| pu.index).collect();
    let right_text = match layout.tile < 16.0 && !pus.is_empty() {
        true => shorten(&format!("PUs {pus}"), ((place.width - 2.0 * PADDING - 60.0) / 5.6) as usize),
        false => sockets.clone(),
    };
    canvas.open(&format!("{name}, {sockets}, PUs {pus}"));
    canvas.text(right, place.y + 17.0, "nm-small nm-end", &right_text);
    canvas.close();
    let top = place.y + NODE_HEAD;
    let (sheets, height) = layout.sheets(node, place.width);
    if node.domains.is_empty() {
        canvas.text(left, top + 12.0, "nm-small", "no PUs: memory only");
    }
    for (domain, sheet) in node.domains.iter().zip(sheets) {
        let sheet = Area { x: left + sheet.x, y: top + sheet.y, ..sheet };
        canvas.rect(sheet, 5.0, "nm-domain");
        let (cores, _) = layout.cores(domain, place.width - 2.0 * PADDING - 2.0 * SHEET);
        for (core, frame) in domain.iter().zip(cores) {
            let frame = Area { x: sheet.x + SHEET + frame.x, y: sheet.y + SHEET + frame.y, ..frame };
            draw_core(canvas, core, frame, layout, guests);
        }
    }
    let below = top + height;
    draw_memory(canvas, &node.memory, Area { x: left, y: below, width: right - left, height: MEMORY }, guests);
    draw_devices(canvas, &node.devices, left, right, below + MEMORY + 3.0);
}

fn draw_core(canvas: &mut Canvas, core: &[MapPu], frame: Area, layout: &Layout, guests: &[String]) {
    canvas.rect(frame, 3.0, "nm-cell");
    let padding = layout.core_padding();
    // A core of more PUs than fit a line keeps its tiles at a narrower pitch.
    let pitch = (frame.width - 2.0 * padding + 1.0) / core.len().max(1) as f64;
    for (position, pu) in core.iter().enumerate() {
        let x = frame.x + padding + position as f64 * pitch;
        let area = Area { x, y: frame.y + padding, width: (pitch - 1.0).min(layout.tile), height: layout.tile };
        draw_pu(canvas, pu, area, guests);
    }
}

fn draw_pu(canvas: &mut Canvas, pu: &MapPu, area: Area, guests: &[String]) {
    let (middle, baseline) = (area.x + area.width / 2.0, area.y + area.height / 2.0 + 3.0);
    let owners: Vec<_> = pu
        .owners
        .iter()
        .map(|(guest, letter)| format!("{} ({letter})", guests.get(*guest).map_or("?", String::as_str)))
        .collect();
    let state = match (pu.online, owners.is_empty()) {
        (false, _) => "offline".to_owned(),
        (true, true) => "free".to_owned(),
        (true, false) => owners.join(" and "),
    };
    canvas.open(&format!("PU {}: {state}", pu.index));
    match pu.owners.first() {
        Some((guest, letter)) => {
            canvas.rect(area, 2.0, &guest_class(*guest));
            // The guest's letter, and the thread's where there is room: colour alone says nothing to some.
            let own = HostMap::letter(*guest);
            let label = if area.width >= 18.0 { format!("{own}{letter}") } else { own.to_string() };
            if area.width >= 8.0 {
                canvas.text(middle, baseline + 0.5, "nm-own-letter", &label);
            }
        }
        None => {
            canvas.rect(area, 2.0, if pu.online { "nm-pu" } else { "nm-offline" });
            let class = if area.width >= 26.0 { "nm-tiny nm-muted" } else { "nm-pu-small" };
            if area.width >= 16.0 {
                canvas.text(middle, baseline, class, &pu.index.to_string());
            }
        }
    }
    canvas.close();
}

fn draw_memory(canvas: &mut Canvas, memory: &MapMemory, area: Area, guests: &[String]) {
    let bar = Area { x: area.x, y: area.y + 9.0, width: area.width, height: 9.0 };
    let total = memory.total.map_or("memory unknown".to_owned(), |total| total.to_string());
    let free = memory.free.map(|free| format!("{free} free"));
    let pools = memory.pools_text();
    let of_guests = memory
        .guests
        .iter()
        .map(|(guest, amount)| format!("{}: {amount}", guests.get(*guest).map_or("?", String::as_str)));
    let title: Vec<_> = [Some(total.clone()), free.clone(), Some(pools.clone()).filter(|pools| !pools.is_empty())]
        .into_iter()
        .flatten()
        .chain(of_guests)
        .collect();
    canvas.open(&title.join("; "));
    canvas.rect(bar, 2.0, "nm-bar");
    if let Some(total) = memory.total.filter(|total| *total > Bytes::ZERO) {
        segments(canvas, memory, total, bar);
    }
    canvas.close();
    let right = match (pools.is_empty(), free) {
        (false, _) => format!("{pools} free"),
        (true, Some(free)) => free,
        (true, None) => String::new(),
    };
    canvas.text(area.x, area.y + 31.0, "nm-small", &total);
    let room = (area.width / 5.5) as usize;
    let right = shorten(&right, room.saturating_sub(total.chars().count() + 2));
    canvas.text(area.x + area.width, area.y + 31.0, "nm-small nm-end", &right);
}

fn segments(canvas: &mut Canvas, memory: &MapMemory, total: Bytes, bar: Area) {
    let (huge_free, huge_used) = memory.huge();
    let mut parts: Vec<(Bytes, String, Option<&str>)> =
        memory.guests.iter().map(|(guest, amount)| (*amount, guest_class(*guest), None)).collect();
    parts.push((huge_used, "nm-hugeused".to_owned(), None));
    parts.push((huge_free, "nm-plain".to_owned(), Some("hugefree")));
    let known = parts.iter().fold(Bytes::ZERO, |sum, (amount, ..)| sum.plus(*amount));
    match memory.free {
        Some(free) => parts.push((total.less(free).less(known), "nm-used".to_owned(), None)),
        None => parts.push((total.less(known), "nm-plain".to_owned(), Some("otherused"))),
    }
    let (mut x, end) = (bar.x, bar.x + bar.width);
    for (amount, class, pattern) in parts.into_iter().filter(|(amount, ..)| *amount > Bytes::ZERO) {
        let width = (amount.get() as f64 / total.get() as f64 * bar.width).max(1.5).min(end - x);
        let part = Area { x, width, y: bar.y + 1.0, height: bar.height - 2.0 };
        match pattern {
            None => canvas.rect(part, 0.0, &class),
            Some(pattern) => canvas.patterned(part, 0.0, &class, pattern),
        }
        x += width;
    }
}

/// Devices hang on their node: a line down from the memory, and one to each.
fn draw_devices(canvas: &mut Canvas, devices: &[MapDevice], left: f64, right: f64, top: f64) {
    let shown = &devices[..devices.len().min(DEVICES_SHOWN)];
    let rest = devices.len() - shown.len();
    let lines = shown.len() + usize::from(rest > 0);
    if lines == 0 {
        return;
    }
    let middle = |line: usize| top + line as f64 * DEVICE + DEVICE / 2.0;
    canvas.line((left + 3.0, top - 1.0), (left + 3.0, middle(lines - 1)), "nm-axis");
    for (line, device) in shown.iter().enumerate() {
        let y = middle(line);
        canvas.line((left + 3.0, y), (left + 10.0, y), "nm-axis");
        canvas.circle(left + 12.0, y, 2.6, "nm-pin");
        let vfs = if device.vfs > 0 { format!(" · {} VFs", device.vfs) } else { String::new() };
        canvas.open(&format!("{} {}{vfs}", device.name, device.address));
        let address = format!("{}{vfs}", device.address);
        let room = ((right - left - 20.0) / 6.1) as usize;
        let name = shorten(&device.name, room.saturating_sub(address.chars().count()).max(8));
        canvas.text(left + 20.0, y + 3.8, "", &name);
        canvas.text(right, y + 3.8, "nm-small nm-end", &address);
        canvas.close();
    }
    if rest > 0 {
        let y = middle(lines - 1);
        canvas.line((left + 3.0, y), (left + 10.0, y), "nm-axis");
        canvas.text(left + 20.0, y + 3.8, "nm-small", &format!("and {rest} more"));
    }
}
