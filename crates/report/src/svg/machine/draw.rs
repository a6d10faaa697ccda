//! Draws the arrangement. Colour never stands alone: tiles carry letters, memory carries patterns.

use nearmetal_units::Bytes;

use super::facts::{Device, Machine, Memory, Node, Pu, Touch, owner_name};
use super::layout::{DEVICE_HEIGHT, DEVICES_SHOWN, Layout, PADDING, core_padding, core_places};
use crate::svg::canvas::{Area, Canvas};
use crate::text::shorten;
use crate::view::SliceRole;

/// Draws everything; the picture's height, legend included.
pub(super) fn draw(canvas: &mut Canvas, machine: &Machine, layout: &Layout, guest: &str) -> f64 {
    for (frame, title) in &layout.frames {
        canvas.rect(*frame, 10.0, "nm-package");
        canvas.text(frame.x + 14.0, frame.y + 22.0, "nm-small", title);
    }
    let mut touches = machine.packages.iter().flat_map(|package| &package.nodes).map(|node| node.touch);
    let everywhere = layout.boxes.len() > 1 && touches.all(|touch| touch == Touch::Floating);
    let packages = machine.packages.iter().flat_map(|package| package.nodes.iter().map(|node| (package.number, node)));
    for ((package, node), area) in packages.zip(&layout.boxes) {
        let socket = if layout.frames.is_empty() { package } else { None };
        draw_node(canvas, node, socket, *area, layout, guest);
        if !everywhere {
            outline(canvas, node.touch, area.grown(4.0), guest);
        }
    }
    if everywhere {
        // One outline around the machine says it better than one around each node.
        let inside = Area { x: 0.0, y: 0.0, width: layout.width, height: layout.height };
        outline(canvas, Touch::Floating, inside.grown(-9.0), guest);
    }
    let mut y = layout.height;
    if !machine.strays.is_empty() {
        let names: Vec<_> = machine.strays.iter().map(stray).collect();
        let room = (layout.width / 6.0) as usize;
        canvas.text(20.0, y + 8.0, "nm-small", &shorten(&format!("node unknown: {}", names.join(", ")), room));
        y += 18.0;
    }
    legend(canvas, machine, layout.width, y, guest)
}

fn stray(device: &Device) -> String {
    match &device.purpose {
        Some(purpose) => format!("{} ({purpose})", device.name),
        None => device.name.clone(),
    }
}

fn draw_node(canvas: &mut Canvas, node: &Node, socket: Option<u32>, area: Area, layout: &Layout, guest: &str) {
    canvas.rect(area, 7.0, "nm-node");
    let left = area.x + PADDING;
    let right = area.x + area.width - PADDING;
    let name = node.index.map_or("no node".to_owned(), |index| format!("node {index}"));
    canvas.text(left, area.y + PADDING + 10.0, "nm-bold", &name);
    if let Some(socket) = socket {
        canvas.text(right, area.y + PADDING + 10.0, "nm-small nm-end", &format!("socket {socket}"));
    }
    let top = area.y + PADDING + 22.0;
    if node.cores.is_empty() {
        canvas.text(left, top + 14.0, "nm-small", "no PUs: memory only");
    }
    for (core, place) in node.cores.iter().zip(core_places(node, layout.tile, layout.node_width).0) {
        let place = Area { x: left + place.x, y: top + place.y, ..place };
        draw_core(canvas, core, place, layout.tile);
    }
    let below = top + layout.cores_height;
    draw_memory(canvas, &node.memory, Area { x: left, y: below, width: right - left, height: 40.0 }, guest);
    let first = below + 40.0 + if layout.guest_line { 16.0 } else { 0.0 };
    for (line, device) in node.devices.iter().take(DEVICES_SHOWN).enumerate() {
        let y = first + line as f64 * DEVICE_HEIGHT;
        draw_device(canvas, device, Area { x: left, y: y + 4.0, width: right - left, height: DEVICE_HEIGHT - 4.0 });
    }
    if node.devices.len() > DEVICES_SHOWN {
        let rest = node.devices.len() - DEVICES_SHOWN;
        let y = first + DEVICES_SHOWN as f64 * DEVICE_HEIGHT + 15.0;
        canvas.text(left, y, "nm-small", &format!("and {rest} more devices"));
    }
}

fn draw_core(canvas: &mut Canvas, core: &[Pu], place: Area, tile: f64) {
    let padding = core_padding(tile);
    canvas.rect(place, if tile < 20.0 { 2.5 } else { 5.0 }, "nm-core");
    let pitch = (place.width - 2.0 * padding + 2.0) / core.len().max(1) as f64;
    for (position, pu) in core.iter().enumerate() {
        let x = place.x + padding + position as f64 * pitch;
        draw_pu(canvas, pu, Area { x, y: place.y + padding, width: (pitch - 2.0).min(tile), height: tile });
    }
}

fn draw_pu(canvas: &mut Canvas, pu: &Pu, area: Area) {
    let radius = if area.height < 20.0 { 1.5 } else { 3.0 };
    let (middle, tile) = (area.x + area.width / 2.0, area.height);
    let large = tile >= 28.0;
    canvas.open(&pu_title(pu));
    if let Some((role, _)) = pu.owners.first() {
        canvas.rect(area, radius, role_class(*role));
        let label = owners_label(pu, large);
        if large {
            canvas.text(middle, area.y + tile * 0.52, "nm-onfill", &label);
            canvas.text(middle, area.y + tile * 0.84, "nm-onsmall", &format!("PU {}", pu.index));
        } else {
            let class = if tile < 20.0 { "nm-onsmall" } else { "nm-onfill" };
            canvas.text(middle, area.y + tile * 0.72, class, &label);
        }
    } else if pu.floating {
        canvas.patterned(area, radius, "nm-floating", "floating");
        if large {
            canvas.circle(middle, area.y + tile / 2.0, 9.0, "nm-knock");
            canvas.text(middle, area.y + tile / 2.0 + 4.0, "nm-float-text", &pu.index.to_string());
        }
    } else {
        canvas.rect(area, radius, if pu.online { "nm-pu" } else { "nm-offline" });
        if tile >= 20.0 {
            let class = if large { "nm-idle" } else { "nm-tiny nm-muted" };
            canvas.text(middle, area.y + tile / 2.0 + 4.0, class, &pu.index.to_string());
        }
    }
    canvas.close();
}

fn pu_title(pu: &Pu) -> String {
    let owners: Vec<_> = pu.owners.iter().map(|(role, number)| owner_name(*role, *number)).collect();
    let state = if !pu.online {
        "offline".to_owned()
    } else if !owners.is_empty() {
        owners.join(" and ")
    } else if pu.floating {
        "floating threads may run here".to_owned()
    } else {
        "not of the slice".to_owned()
    };
    format!("PU {}: {state}", pu.index)
}

/// `v0`, `E`, `I1`, `h`; more than one owner is joined by a plus sign, cut to what fits.
fn owners_label(pu: &Pu, large: bool) -> String {
    let letter = |role: SliceRole| match role {
        SliceRole::Vcpu => "v",
        SliceRole::Emulator => "E",
        SliceRole::Iothread => "I",
        SliceRole::Vhost => "h",
    };
    let label = |(role, number): &(SliceRole, Option<u32>)| match number {
        Some(number) if large => format!("{}{number}", letter(*role)),
        _ => letter(*role).to_owned(),
    };
    let labels: Vec<_> = pu.owners.iter().map(label).collect();
    let joined = labels.join("+");
    let room = if large { 5 } else { 1 };
    if joined.chars().count() <= room { joined } else { format!("{}+", labels.first().map_or("", String::as_str)) }
}

fn role_class(role: SliceRole) -> &'static str {
    match role {
        SliceRole::Vcpu => "nm-vcpu",
        SliceRole::Emulator => "nm-emulator",
        SliceRole::Iothread => "nm-iothread",
        SliceRole::Vhost => "nm-vhost",
    }
}

fn draw_memory(canvas: &mut Canvas, memory: &Memory, area: Area, guest: &str) {
    let total = memory.total.map_or("memory: unknown".to_owned(), |total| total.to_string());
    canvas.text(area.x, area.y + 19.0, "nm-small", &total);
    let pools: Vec<_> =
        memory.pools.iter().map(|(size, pages, free)| format!("{pages} × {size}, {free} free")).collect();
    let pools = if pools.is_empty() { "no hugepages".to_owned() } else { pools.join("; ") };
    canvas.text(
        area.x + area.width,
        area.y + 19.0,
        "nm-small nm-end",
        &shorten(&pools, (area.width / 5.4) as usize - 10),
    );
    let bar = Area { x: area.x, y: area.y + 25.0, width: area.width, height: 11.0 };
    let title = format!("memory {total}; {pools}; {guest}: {}", memory.guest);
    canvas.open(&title);
    canvas.rect(bar, 2.0, "nm-bar");
    if let Some(total) = memory.total.filter(|total| *total > Bytes::ZERO) {
        segments(canvas, memory, total, bar);
    }
    canvas.close();
    if memory.guest > Bytes::ZERO {
        let sizes: Vec<_> = memory.guest_sizes.iter().map(ToString::to_string).collect();
        let line = format!("{}: {} in {} pages", shorten(guest, 14), memory.guest, sizes.join(" and "));
        canvas.text(area.x, area.y + 51.0, "nm-small nm-own", &shorten(&line, (area.width / 5.7) as usize));
    }
}

fn segments(canvas: &mut Canvas, memory: &Memory, total: Bytes, bar: Area) {
    let known = memory.guest.plus(memory.huge_used).plus(memory.huge_free);
    let other = memory.free.map_or(Bytes::ZERO, |free| total.less(free).less(known));
    let mut x = bar.x;
    let end = bar.x + bar.width;
    let parts = [
        (memory.guest, "nm-guest", None),
        (memory.huge_used, "nm-hugeused", None),
        (memory.huge_free, "nm-plain", Some("hugefree")),
        (other, "nm-plain", Some("otherused")),
    ];
    for (amount, class, pattern) in parts.into_iter().filter(|(amount, ..)| *amount > Bytes::ZERO) {
        let width = (amount.get() as f64 / total.get() as f64 * bar.width).max(1.5).min(end - x);
        let part = Area { x, width, y: bar.y + 1.0, height: bar.height - 2.0 };
        match pattern {
            None => canvas.rect(part, 0.0, class),
            Some(pattern) => canvas.patterned(part, 0.0, class, pattern),
        }
        x += width;
    }
}

fn draw_device(canvas: &mut Canvas, device: &Device, area: Area) {
    let middle = area.y + area.height / 2.0 + 3.8;
    canvas.rect(area, 3.0, if device.purpose.is_some() { "nm-device-own" } else { "nm-device" });
    let class = if device.purpose.is_some() { "nm-own" } else { "" };
    let label = match &device.purpose {
        Some(purpose) => format!("{} → {purpose}", device.name),
        None => device.name.clone(),
    };
    let vfs = if device.vfs > 0 { format!(" · {} VFs", device.vfs) } else { String::new() };
    let detail = format!("{}{vfs}", device.address);
    canvas.open(&format!("{label} {detail}"));
    canvas.text(area.x + 8.0, middle, class, &shorten(&label, 22));
    // The address is worth more than the count; the title has both.
    let room = area.width - 22.0 - label.chars().count().min(22) as f64 * 6.7;
    let fits = |text: &str| text.chars().count() as f64 * 5.4 <= room;
    if let Some(detail) = [&detail, &device.address].into_iter().find(|text| fits(text)) {
        canvas.text(area.x + area.width - 7.0, middle, "nm-small nm-end", detail);
    }
    canvas.close();
}

/// The outline around the slice, solid where threads are bound, dashed where they only may run.
fn outline(canvas: &mut Canvas, touch: Touch, area: Area, guest: &str) {
    let (class, tab, words) = match touch {
        Touch::None => return,
        Touch::Bound => ("nm-slice", "nm-tab", shorten(guest, 20)),
        Touch::Floating => ("nm-slice-floating", "nm-tab-floating", format!("{} floats", shorten(guest, 16))),
        Touch::Helpers => ("nm-slice-pages", "nm-tab", format!("helpers of {}", shorten(guest, 12))),
        Touch::Pages => ("nm-slice-pages", "nm-tab", format!("pages of {}", shorten(guest, 14))),
    };
    canvas.rect(area, 10.0, class);
    let width = words.chars().count() as f64 * 6.0 + 16.0;
    let x = area.x + (area.width - width) / 2.0;
    canvas.rect(Area { x, y: area.y - 8.0, width, height: 16.0 }, 8.0, tab);
    canvas.text(x + width / 2.0, area.y + 3.6, "nm-tab-text nm-middle", &words);
}

/// The legend names what is in the picture; the new height.
fn legend(canvas: &mut Canvas, machine: &Machine, width: f64, top: f64, guest: &str) -> f64 {
    let nodes = || machine.packages.iter().flat_map(|package| &package.nodes);
    let pus = || nodes().flat_map(|node| node.cores.iter().flatten());
    let holds = |wanted: SliceRole| pus().any(|pu| pu.owners.iter().any(|(role, _)| *role == wanted));
    let mut entries: Vec<(&str, Option<&str>, &str, String)> = Vec::new();
    for (role, letter, name) in [
        (SliceRole::Vcpu, "v", "vCPU"),
        (SliceRole::Emulator, "E", "emulator thread"),
        (SliceRole::Iothread, "I", "iothread"),
        (SliceRole::Vhost, "h", "vhost worker"),
    ] {
        if holds(role) {
            entries.push((role_class(role), None, letter, name.to_owned()));
        }
    }
    if pus().any(|pu| pu.floating && pu.owners.is_empty()) {
        entries.push(("nm-floating", Some("floating"), "", "unbound threads may run here".to_owned()));
    }
    entries.push(("nm-pu", None, "", "other PU".to_owned()));
    if nodes().any(|node| node.memory.guest > Bytes::ZERO) {
        entries.push(("nm-guest", None, "", format!("memory of {}", shorten(guest, 16))));
    }
    if nodes().any(|node| node.memory.huge_used > Bytes::ZERO) {
        entries.push(("nm-hugeused", None, "", "hugepages in other use".to_owned()));
    }
    if nodes().any(|node| node.memory.huge_free > Bytes::ZERO) {
        entries.push(("nm-plain", Some("hugefree"), "", "free hugepages".to_owned()));
    }
    if nodes().any(|node| node.memory.free.is_some()) {
        entries.push(("nm-plain", Some("otherused"), "", "other memory in use".to_owned()));
    }
    let (mut x, mut y) = (20.0, top + 2.0);
    for (class, pattern, letter, words) in entries {
        let step = 22.0 + words.chars().count() as f64 * 6.0 + 18.0;
        if x > 20.0 && x + step > width {
            x = 20.0;
            y += 20.0;
        }
        let swatch = Area { x, y, width: 14.0, height: 14.0 };
        match pattern {
            None => canvas.rect(swatch, 2.5, class),
            Some(pattern) => canvas.patterned(swatch, 2.5, class, pattern),
        }
        canvas.rect(swatch, 2.5, "nm-core");
        if !letter.is_empty() {
            canvas.text(x + 7.0, y + 10.6, "nm-onsmall", letter);
        }
        canvas.text(x + 20.0, y + 11.2, "nm-small", &words);
        x += step;
    }
    y + 28.0
}
