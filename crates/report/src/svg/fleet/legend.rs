//! Whose letters they are, and what the signs mean.

use nearmetal_units::Bytes;

use super::layout::WIDTH;
use super::{LETTER, chip};
use crate::svg::canvas::{Area, Canvas};
use crate::text::{grouped, shorten};
use crate::view::fleet::{Alike, HostSheet, PuUse};

/// Columns of owners.
const COLUMNS: usize = 4;
/// Owners named below a host; the rest is counted.
const OWNERS_SHOWN: usize = 64;

/// Owners of one host, in columns; the end.
pub(super) fn owners(canvas: &mut Canvas, group: &Alike, x: f64, y: f64) -> f64 {
    let owners = &group.sheet.owners;
    let shown = owners.len().min(OWNERS_SHOWN);
    if owners.is_empty() {
        canvas.text(x, y + 12.0, "nm-small", "no VM here, before or after");
        return y + 18.0;
    }
    let width = WIDTH / COLUMNS as f64;
    let rows = shown.div_ceil(COLUMNS);
    for (number, owner) in owners[..shown].iter().enumerate() {
        // Down, then across: letters stay in order for the eye.
        let (x, y) = (x + (number / rows) as f64 * width, y + (number % rows) as f64 * 29.0);
        chip(canvas, owners, number, x, y + 3.0);
        let room = ((width - 30.0) / LETTER) as usize;
        canvas.text(x + 19.0, y + 10.0, "nm-bold", &shorten(&owner.name, room - 6));
        let words: Vec<&str> =
            [owner.change.as_str(), owner.asks.as_str()].into_iter().filter(|words| !words.is_empty()).collect();
        canvas.text(x + 19.0, y + 22.5, "nm-small", &shorten(&words.join(" · "), room));
    }
    let mut y = y + rows as f64 * 29.0;
    let mut notes = Vec::new();
    if owners.len() > shown {
        notes.push(format!("and {} more", grouped((owners.len() - shown) as f64)));
    }
    if group.hosts.len() > 1 {
        notes.push(format!("names are those of {}", group.sheet.name));
    }
    if !notes.is_empty() {
        canvas.text(x, y + 10.0, "nm-small", &notes.join(" · "));
        y += 14.0;
    }
    y
}

/// A sign: class of its square, its pattern, its letter and that one's class, and what it means.
struct Sign(&'static str, Option<&'static str>, &'static str, &'static str, &'static str);

/// What the signs that are drawn mean, in lines; the end.
pub(super) fn signs<'a>(canvas: &mut Canvas, sheets: impl Iterator<Item = &'a HostSheet>, x: f64, y: f64) -> f64 {
    let sheets: Vec<&HostSheet> = sheets.collect();
    let nodes = || sheets.iter().flat_map(|sheet| sheet.nodes());
    let pus = || nodes().flat_map(|node| node.domains.iter().flatten().flatten());
    let seen = |wanted: fn(&PuUse) -> bool| pus().any(|pu| wanted(&pu.uses.before) || wanted(&pu.uses.after));
    let memories = || nodes().flat_map(|node| [&node.memory.before, &node.memory.after]);
    let table = [
        (
            true,
            Sign("nm-pu", None, "", "", "free PU, by its number; PUs of a core share a frame, cores of an L3 a sheet"),
        ),
        (
            seen(|used| matches!(used, PuUse::Vcpu { .. })),
            Sign("nm-guest-0", None, "A", "nm-own-letter", "PU or memory of VM A"),
        ),
        (
            seen(|used| matches!(used, PuUse::Vcpu { floats: true, .. })),
            Sign("nm-ring-0", Some("floating"), "A", "nm-sign", "A could have it, and is better left floating"),
        ),
        (
            seen(|used| matches!(used, PuUse::Idle(_))),
            Sign("nm-ring-0", None, "–", "nm-sign", "left idle for the VM on its core"),
        ),
        (
            seen(|used| *used == PuUse::Shared),
            Sign("nm-pu", Some("floating"), "", "", "vCPUs of the VMs named below float over it"),
        ),
        (
            seen(|used| matches!(used, PuUse::Held(_))),
            Sign("nm-hugeused", None, "1", "nm-own-letter", "guest that is not of this fleet"),
        ),
        (
            seen(|used| *used == PuUse::Kept),
            Sign("nm-kept", None, "H", "nm-sign", "kept for the host and for VMs' emulator threads"),
        ),
        (seen(|used| *used == PuUse::LeftOut), Sign("nm-pu", Some("otherused"), "", "", "online, not to be given")),
        (seen(|used| *used == PuUse::Offline), Sign("nm-offline", None, "", "", "offline")),
        (
            memories().any(|memory| memory.held.is_some_and(|held| held > Bytes::ZERO)),
            Sign("nm-used", None, "", "", "memory kept: the host's reserve, or in use by others"),
        ),
        (
            memories().any(|memory| memory.held.is_none() && memory.total.is_some()),
            Sign("nm-plain", Some("otherused"), "", "", "memory: how much is free is not told"),
        ),
        (
            memories().any(|memory| memory.pools.iter().any(|(_, free, _)| *free > 0)),
            Sign("nm-plain", Some("hugefree"), "", "", "free hugepages"),
        ),
    ];
    let (mut across, mut line) = (0.0, y + 8.0);
    for Sign(class, pattern, letter, letter_class, words) in
        table.into_iter().filter(|(shown, _)| *shown).map(|(_, sign)| sign)
    {
        let width = 20.0 + words.chars().count() as f64 * LETTER + 14.0;
        if across > 0.0 && across + width > WIDTH {
            (across, line) = (0.0, line + 20.0);
        }
        let swatch = Area { x: x + across, y: line, width: 14.0, height: 14.0 };
        match pattern {
            None => canvas.rect(swatch, 2.5, class),
            Some(pattern) => canvas.patterned(swatch, 2.5, class, pattern),
        }
        if class == "nm-used" || class == "nm-plain" {
            canvas.rect(swatch, 2.5, "nm-core");
        }
        if !letter.is_empty() {
            canvas.text(x + across + 7.0, line + 10.6, letter_class, letter);
        }
        canvas.text(x + across + 19.0, line + 11.0, "nm-small", words);
        across += width;
    }
    line + 20.0
}
