//! A node's memory at one moment: a bar of what is held, what VMs have and what is free, and the pools in words.

use nearmetal_units::Bytes;

use super::{LETTER, label, name, owner_class};
use crate::svg::canvas::{Area, Canvas};
use crate::text::{grouped, shorten};
use crate::view::fleet::{SheetMemory, SheetOwner};

/// A part of the bar at least this wide has its owner's letter.
const ROOM_FOR_LETTER: f64 = 10.0;

/// `scale` is what the whole bar stands for, the same before and after.
pub(super) fn draw(canvas: &mut Canvas, memory: &SheetMemory, scale: Bytes, area: Area, owners: &[SheetOwner]) {
    let bar = Area { x: area.x, y: area.y + 7.0, width: area.width, height: 13.0 };
    let of_vms = memory.uses.iter().map(|(owner, amount, _)| (owner, amount));
    let of_others = memory.others.iter().map(|(owner, amount)| (owner, amount));
    let of_vms = of_vms.chain(of_others).map(|(owner, amount)| format!("{}: {amount}", name(owners, *owner)));
    let title: Vec<_> = of_vms.chain([figures(memory)]).collect();
    canvas.open(&title.join("; "));
    canvas.rect(bar, 2.0, "nm-bar");
    if scale > Bytes::ZERO {
        segments(canvas, memory, scale, bar, owners);
    }
    canvas.close();
    let room = (area.width / LETTER) as usize;
    canvas.text(area.x, area.y + 32.0, "nm-small", &shorten(&figures(memory), room));
    if !memory.pools.is_empty() {
        canvas.text(area.x, area.y + 45.0, "nm-small", &shorten(&pools(memory), room));
    }
}

fn figures(memory: &SheetMemory) -> String {
    let mut parts = Vec::new();
    if memory.is_untold() && memory.free == Bytes::ZERO && memory.uses.is_empty() {
        return "free memory not told".to_owned();
    }
    if memory.used() > Bytes::ZERO {
        parts.push(format!("VMs {}", memory.used()));
    }
    parts.push(format!("free {}", memory.free));
    if !memory.others.is_empty() {
        let others = memory.others.iter().fold(Bytes::ZERO, |sum, (_, amount)| sum.plus(*amount));
        parts.push(format!("others {others}"));
    }
    match memory.held {
        Some(held) if held > Bytes::ZERO => parts.push(format!("kept {held}")),
        Some(_) => {}
        None if memory.is_untold() => parts.push("others' not told".to_owned()),
        None => parts.push("in all unknown".to_owned()),
    }
    parts.join(" · ")
}

/// `free pages: 4×1 GiB, 0×2 MiB (add 2,048)`.
fn pools(memory: &SheetMemory) -> String {
    let pools = memory.pools.iter().map(|(size, free, add)| {
        let add = if *add > 0 { format!(" (add {})", grouped(*add as f64)) } else { String::new() };
        format!("{}×{size}{add}", grouped(*free as f64))
    });
    format!("free pages: {}", pools.collect::<Vec<_>>().join(", "))
}

fn segments(canvas: &mut Canvas, memory: &SheetMemory, scale: Bytes, bar: Area, owners: &[SheetOwner]) {
    let pooled = memory.pools.iter().map(|(size, free, _)| size.bytes().times(*free)).fold(Bytes::ZERO, Bytes::plus);
    let mut parts: Vec<(Bytes, String, Option<&str>, &str)> = Vec::new();
    if let Some(held) = memory.held {
        parts.push((held, "nm-used".to_owned(), None, ""));
    }
    for (owner, amount) in &memory.others {
        parts.push((*amount, owner_class(owners, *owner), None, label(owners, *owner)));
    }
    for (owner, amount, _) in &memory.uses {
        parts.push((*amount, owner_class(owners, *owner), None, label(owners, *owner)));
    }
    parts.push((pooled, "nm-plain".to_owned(), Some("hugefree"), ""));
    if let (Some(total), None) = (memory.total, memory.held) {
        let known = parts.iter().fold(memory.free, |sum, (amount, ..)| sum.plus(*amount));
        parts.push((total.less(known), "nm-plain".to_owned(), Some("otherused"), ""));
    }
    let (mut x, end) = (bar.x, bar.x + bar.width);
    for (amount, class, pattern, letter) in parts.into_iter().filter(|(amount, ..)| *amount > Bytes::ZERO) {
        let width = (amount.get() as f64 / scale.get() as f64 * bar.width).max(1.5).min(end - x);
        // A hairline of the ground keeps neighbours of one colour apart.
        let part = Area { x, width: (width - 0.8).max(0.7), y: bar.y + 1.0, height: bar.height - 2.0 };
        match pattern {
            None => canvas.rect(part, 0.0, &class),
            Some(pattern) => canvas.patterned(part, 0.0, &class, pattern),
        }
        if width >= ROOM_FOR_LETTER * letter.len().max(1) as f64 && !letter.is_empty() {
            canvas.text(x + width / 2.0, bar.y + 10.0, "nm-own-letter", letter);
        }
        x += width;
    }
}
