//! One node's box at one moment.

use nearmetal_units::CpuSet;

use super::layout::{DEVICE, DEVICES_SHOWN, FLOATS, Layout, MEMORY, NODE_HEAD, PADDING, POOLS, SHEET, floats, pools};
use super::{LETTER, chip, label, memory, name, owner_class};
use crate::svg::canvas::{Area, Canvas};
use crate::text::{count, shorten};
use crate::view::fleet::{PuUse, SheetDevice, SheetNode, SheetOwner, SheetPu};

/// A tile this wide has its PU's number below the owner's letter.
const ROOM_FOR_NUMBER: f64 = 24.0;

/// Letters of a list of PUs that is cut and still worth showing.
const LEAST_LIST: usize = 18;

/// Draws a node into its place.
pub(super) fn draw(
    canvas: &mut Canvas,
    node: &SheetNode,
    place: Area,
    layout: &Layout,
    owners: &[SheetOwner],
    after: bool,
) {
    canvas.rect(place, 7.0, "nm-node");
    let (left, right) = (place.x + PADDING, place.x + place.width - PADDING);
    let title = node.index.map_or("no node".to_owned(), |index| format!("node {index}"));
    let total = node.memory.at(after).total.map(|total| total.to_string()).unwrap_or_default();
    canvas.parts(left, place.y + 16.0, &[("nm-bold", 0.0, &title), ("nm-small", 6.0, &total)]);
    let pus: CpuSet = node.domains.iter().flatten().flatten().map(|pu| pu.index).collect();
    if !pus.is_empty() {
        let taken = 8.0 * title.len() as f64 + 6.2 * total.len() as f64 + 12.0;
        let room = ((place.width - 2.0 * PADDING - taken) / LETTER).max(0.0) as usize;
        let list = format!("PUs {pus}");
        // A list cut to its first figures says less than none; the tiles' titles have the numbers.
        if list.len() <= room || room >= LEAST_LIST {
            canvas.text(right, place.y + 16.0, "nm-small nm-end", &shorten(&list, room));
        }
    }
    let top = place.y + NODE_HEAD;
    let (sheets, height) = layout.sheets(node);
    if node.domains.is_empty() {
        canvas.text(left, top + 11.0, "nm-small", "no PUs: memory only");
    }
    for (domain, sheet) in node.domains.iter().zip(sheets) {
        let sheet = Area { x: left + sheet.x, y: top + sheet.y, ..sheet };
        canvas.rect(sheet, 4.0, "nm-domain");
        for (core, frame) in domain.iter().zip(layout.cores(domain).0) {
            let frame = Area { x: sheet.x + SHEET + frame.x, y: sheet.y + SHEET + frame.y, ..frame };
            draw_core(canvas, core, frame, layout, owners, after);
        }
    }
    let mut y = top + height;
    if floats(node) {
        draw_floats(canvas, node.floats.at(after), left, right, y, owners);
        y += FLOATS;
    }
    let all = Area { x: left, y, width: right - left, height: MEMORY };
    memory::draw(canvas, node.memory.at(after), node.memory.after.scale().max(node.memory.before.scale()), all, owners);
    y += MEMORY + if pools(node) { POOLS } else { 0.0 };
    devices(canvas, &node.devices, (left, right), y, owners, after);
}

fn draw_core(canvas: &mut Canvas, core: &[SheetPu], frame: Area, layout: &Layout, owners: &[SheetOwner], after: bool) {
    canvas.rect(frame, 3.0, "nm-cell");
    let padding = layout.core_padding();
    // A core of more PUs than fit a line keeps its tiles at a narrower pitch.
    let pitch = (frame.width - 2.0 * padding + 1.0) / core.len().max(1) as f64;
    for (position, pu) in core.iter().enumerate() {
        let x = frame.x + padding + position as f64 * pitch;
        let area = Area { x, y: frame.y + padding, width: (pitch - 1.0).min(layout.tile), height: layout.tile };
        draw_pu(canvas, pu.index, pu.uses.at(after), area, owners);
    }
}

fn draw_pu(canvas: &mut Canvas, index: u32, used: &PuUse, area: Area, owners: &[SheetOwner]) {
    let words = match used {
        PuUse::Free => "free".to_owned(),
        PuUse::Shared => "vCPUs float over it".to_owned(),
        PuUse::Vcpu { owner, floats: false } => name(owners, *owner).to_owned(),
        PuUse::Vcpu { owner, floats: true } => format!("{}, better left floating", name(owners, *owner)),
        PuUse::Idle(owner) => format!("idle for {}", name(owners, *owner)),
        PuUse::Held(owner) => format!("{}, not of the fleet", name(owners, *owner)),
        PuUse::Kept => "kept for the host and for emulator threads".to_owned(),
        PuUse::LeftOut => "not to be given".to_owned(),
        PuUse::Offline => "offline".to_owned(),
    };
    canvas.open(&format!("PU {index}: {words}"));
    let number = index.to_string();
    match used {
        PuUse::Vcpu { owner, floats: false } | PuUse::Held(owner) => {
            canvas.rect(area, 2.0, &owner_class(owners, *owner));
            sign(canvas, area, label(owners, *owner), "nm-own-letter", Some((&number, "nm-own-number")));
        }
        PuUse::Vcpu { owner, floats: true } => {
            canvas.patterned(area, 2.0, &owner_class(owners, *owner).replace("guest", "ring"), "floating");
            sign(canvas, area, label(owners, *owner), "nm-sign", Some((&number, "nm-pu-number")));
        }
        PuUse::Idle(owner) => {
            canvas.rect(area, 2.0, &owner_class(owners, *owner).replace("guest", "ring"));
            sign(canvas, area, "–", "nm-sign", Some((&number, "nm-pu-number")));
        }
        PuUse::Shared => {
            canvas.patterned(area, 2.0, "nm-pu", "floating");
            sign(canvas, area, "", "nm-sign", Some((&number, "nm-pu-number")));
        }
        PuUse::Kept => {
            canvas.rect(area, 2.0, "nm-kept");
            sign(canvas, area, "H", "nm-sign", Some((&number, "nm-pu-number")));
        }
        PuUse::LeftOut => canvas.patterned(area, 2.0, "nm-pu", "otherused"),
        PuUse::Free | PuUse::Offline => {
            canvas.rect(area, 2.0, if *used == PuUse::Free { "nm-pu" } else { "nm-offline" });
            if area.width >= 15.0 {
                let (x, y) = (area.x + area.width / 2.0, area.y + area.height / 2.0 + 3.0);
                canvas.text(
                    x,
                    y,
                    if area.width >= ROOM_FOR_NUMBER { "nm-tiny nm-muted" } else { "nm-pu-small" },
                    &number,
                );
            }
        }
    }
    canvas.close();
}

/// A letter in a tile, and the PU's number below it where there is room.
fn sign(canvas: &mut Canvas, area: Area, letter: &str, class: &str, number: Option<(&str, &str)>) {
    let x = area.x + area.width / 2.0;
    let number = number.filter(|_| area.width >= ROOM_FOR_NUMBER);
    let middle = area.y + area.height / 2.0;
    if area.width >= 8.0 && !letter.is_empty() {
        let class = if area.width < 12.0 || (letter.len() > 1 && area.width < 16.0) { "nm-onsmall" } else { class };
        canvas.text(x, middle + if number.is_some() { 1.0 } else { 3.6 }, class, letter);
    }
    if let Some((number, class)) = number {
        canvas.text(x, middle + 10.0, class, number);
    }
}

/// VMs whose vCPUs have no PU of their own, as chips.
fn draw_floats(canvas: &mut Canvas, floats: &[(usize, u32)], left: f64, right: f64, y: f64, owners: &[SheetOwner]) {
    let mut x = left;
    for (position, (owner, vcpus)) in floats.iter().enumerate() {
        let words = count(*vcpus as usize, "vCPU");
        let width = 18.0 + words.len() as f64 * LETTER + 6.0;
        let rest = floats.len() - position;
        if x + width > right - if rest > 1 { 40.0 } else { 0.0 } {
            canvas.text(x, y + 14.5, "nm-small", &format!("+ {rest} more"));
            break;
        }
        canvas.open(&format!("{}: {} float over the node", name(owners, *owner), count(*vcpus as usize, "vCPU")));
        chip(canvas, owners, *owner, x, y + 4.0);
        canvas.text(x + 17.0, y + 14.5, "nm-small", &words);
        canvas.close();
        x += width;
    }
}

/// Devices hang on their node: a line down, and one to each, with those who have them.
pub(super) fn devices(
    canvas: &mut Canvas,
    devices: &[SheetDevice],
    (left, right): (f64, f64),
    top: f64,
    owners: &[SheetOwner],
    after: bool,
) {
    let shown = &devices[..devices.len().min(DEVICES_SHOWN)];
    let rest = devices.len() - shown.len();
    let lines = shown.len() + usize::from(rest > 0);
    if lines == 0 {
        return;
    }
    let middle = |line: usize| top + line as f64 * DEVICE + DEVICE / 2.0;
    canvas.line((left + 3.0, top - 1.0), (left + 3.0, middle(lines - 1)), "nm-axis");
    for (line, device) in shown.iter().enumerate() {
        draw_device(canvas, device, (left, right), middle(line), owners, after);
    }
    if rest > 0 {
        let y = middle(lines - 1);
        canvas.line((left + 3.0, y), (left + 10.0, y), "nm-axis");
        canvas.text(left + 18.0, y + 3.8, "nm-small", &format!("and {rest} more"));
    }
}

fn draw_device(
    canvas: &mut Canvas,
    device: &SheetDevice,
    (left, right): (f64, f64),
    y: f64,
    owners: &[SheetOwner],
    after: bool,
) {
    let grants = device.grants.at(after);
    let has: Vec<_> = grants.iter().map(|(owner, count)| format!("{} has {count}", name(owners, *owner))).collect();
    canvas.open(&format!("{}: {}", device.name, if has.is_empty() { "nobody's".to_owned() } else { has.join(", ") }));
    canvas.line((left + 3.0, y), (left + 10.0, y), "nm-axis");
    canvas.circle(left + 11.0, y, 2.4, "nm-pin");
    // From the right: who has it, then how many are left.
    let mut x = right;
    let least = left + 18.0 + (right - left) * 0.3;
    for (position, (owner, many)) in grants.iter().enumerate() {
        let words = if *many > 1 { format!("×{many}") } else { String::new() };
        let width = 15.0 + words.chars().count() as f64 * 6.0;
        if x - width - 26.0 < least && position + 1 < grants.len() {
            let more = format!("+{}", grants.len() - position);
            canvas.text(x, y + 3.8, "nm-small nm-end", &more);
            x -= 6.0 * more.len() as f64 + 4.0;
            break;
        }
        canvas.text(x, y + 3.8, "nm-small nm-end", &words);
        chip(canvas, owners, *owner, x - width, y - 7.0);
        x -= width + 3.0;
    }
    if let Some(of) = device.of {
        let used: u32 = grants.iter().map(|(_, count)| count).sum();
        let words = format!("{} of {of} free", of.saturating_sub(used));
        canvas.text(x - 2.0, y + 3.8, "nm-small nm-end", &words);
        x -= words.len() as f64 * LETTER + 2.0;
    }
    let room = ((x - left - 22.0) / 6.0).max(6.0) as usize;
    canvas.text(left + 18.0, y + 3.8, "", &shorten(&device.name, room));
    canvas.close();
}
