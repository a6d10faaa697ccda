//! A whole host on one sheet: every node with its L3 domains, cores and PUs, its memory and its devices, in the colours
//! of the guests that own them; and how far the nodes are from each other.

mod distances;
mod layout;
mod node;

use nearmetal_units::Bytes;

use super::Surface;
use super::canvas::{Area, Canvas};
use crate::text::shorten;
use crate::view::{HostMap, MapDevice};
use layout::{Layout, MARGIN};

/// Guests have this many colours; the seventh has the first one's.
const COLOURS: usize = 6;

/// Guests with a letter of their own.
const LETTERS: usize = 26;

/// The picture.
pub fn host_svg(map: &HostMap, surface: Surface) -> String {
    let layout = Layout::new(map);
    let mut canvas = Canvas::new("host");
    let room = (layout.width / 7.0) as usize;
    canvas.text(MARGIN, MARGIN + 18.0, "nm-title", &shorten(&map.name, room / 2));
    canvas.text(MARGIN, MARGIN + 40.0, "", &shorten(&map.counts, room));
    canvas.text(MARGIN, MARGIN + 58.0, "nm-muted", &shorten(&map.about, room));
    for (node, place) in map.nodes.iter().zip(&layout.boxes) {
        node::draw(&mut canvas, node, *place, &layout, &map.guests);
    }
    let mut y = layout.bottom;
    if !map.strays.is_empty() {
        let names: Vec<_> = map.strays.iter().map(stray).collect();
        let text = format!("node unknown: {}", names.join(", "));
        canvas.text(MARGIN, y + 14.0, "nm-small", &shorten(&text, (layout.width / 5.6) as usize));
        y += 22.0;
    }
    let matrix = distances::draw(&mut canvas, map, MARGIN, y + 14.0);
    // The legend stands beside the matrix if there is room, else below.
    let beside = layout.width - matrix.0 - 3.0 * MARGIN >= 260.0;
    let (x, top) = if beside { (MARGIN + matrix.0 + 2.0 * MARGIN, y + 14.0) } else { (MARGIN, y + 22.0 + matrix.1) };
    let legend_end = legend(&mut canvas, map, x, top, layout.width - MARGIN);
    let height = legend_end.max(y + 14.0 + matrix.1) + MARGIN;
    canvas.finish((layout.width, height), &format!("the host {}", map.name), &describe(map), surface)
}

fn stray(device: &MapDevice) -> String {
    format!("{} {}", device.name, device.address)
}

/// The class of a guest's colour.
fn guest_class(guest: usize) -> String {
    format!("nm-guest-{}", guest % COLOURS)
}

/// What the signs mean, one below the other, in columns; the end.
fn legend(canvas: &mut Canvas, map: &HostMap, x: f64, y: f64, right: f64) -> f64 {
    canvas.text(x, y + 10.0, "nm-bold", "What the signs mean");
    let mut entries: Vec<(String, Option<&str>, String, String)> = Vec::new();
    let letters = [('v', "vCPU"), ('E', "emulator thread"), ('I', "iothread"), ('h', "vhost worker")];
    // Further guests share a sign, and would make the legend longer than the host.
    let named = map.guests.len().min(LETTERS);
    for (number, name) in map.guests.iter().take(named).enumerate() {
        let floats = if map.floating.contains(&number) { ": floats, its threads may run anywhere" } else { "" };
        entries.push((
            guest_class(number),
            None,
            HostMap::letter(number).to_string(),
            format!("{}{floats}", shorten(name, 24)),
        ));
    }
    let pus = || map.nodes.iter().flat_map(|node| node.domains.iter().flatten().flatten());
    let seen = |letter: char| pus().any(|pu| pu.owners.iter().any(|(_, own)| *own == letter));
    if map.guests.len() > named {
        let words = format!("{} further guests", map.guests.len() - named);
        entries.push((guest_class(named), None, HostMap::letter(named).to_string(), words));
    }
    for (letter, words) in letters.into_iter().filter(|(letter, _)| seen(*letter)) {
        entries.push(("nm-pu".to_owned(), None, letter.to_string(), words.to_owned()));
    }
    entries.push((
        "nm-pu".to_owned(),
        None,
        String::new(),
        "PU; PUs of a core share a frame, cores of an L3 a sheet".to_owned(),
    ));
    if pus().any(|pu| !pu.online) {
        entries.push(("nm-offline".to_owned(), None, String::new(), "offline PU".to_owned()));
    }
    let memories = || map.nodes.iter().map(|node| &node.memory);
    if memories().any(|memory| memory.free.is_some()) {
        entries.push(("nm-used".to_owned(), None, String::new(), "memory in use".to_owned()));
    }
    if memories().any(|memory| memory.huge().1 > Bytes::ZERO) {
        entries.push(("nm-hugeused".to_owned(), None, String::new(), "hugepages in use".to_owned()));
    }
    if memories().any(|memory| memory.huge().0 > Bytes::ZERO) {
        entries.push(("nm-plain".to_owned(), Some("hugefree"), String::new(), "free hugepages".to_owned()));
    }
    if memories().any(|memory| memory.free.is_none() && memory.total.is_some()) {
        entries.push((
            "nm-plain".to_owned(),
            Some("otherused"),
            String::new(),
            "memory: how much is free is not told".to_owned(),
        ));
    }
    let mut line = y + 24.0;
    for (class, pattern, letter, words) in entries {
        let swatch = Area { x, y: line, width: 14.0, height: 14.0 };
        match pattern {
            None => canvas.rect(swatch, 2.5, &class),
            Some(pattern) => canvas.patterned(swatch, 2.5, &class, pattern),
        }
        canvas.rect(swatch, 2.5, "nm-core");
        if !letter.is_empty() {
            let on_colour = class.starts_with("nm-guest");
            let class = if on_colour { "nm-own-letter" } else { "nm-tiny" };
            canvas.text(x + 7.0, line + 10.6, class, &letter);
        }
        canvas.text(x + 21.0, line + 11.2, "nm-small", &shorten(&words, ((right - x - 21.0) / 5.4) as usize));
        line += 20.0;
    }
    line
}

/// The picture in words.
fn describe(map: &HostMap) -> String {
    let mut sentences = vec![format!("{}: {}", map.name, map.counts)];
    for (number, name) in map.guests.iter().enumerate() {
        let owned = map.nodes.iter().filter_map(|node| {
            let pus = node.domains.iter().flatten().flatten();
            let count = pus.filter(|pu| pu.owners.iter().any(|(guest, _)| *guest == number)).count();
            (count > 0).then(|| format!("{count} PUs of node {}", node.index.unwrap_or_default()))
        });
        let owned: Vec<_> = owned.collect();
        let owned = if owned.is_empty() { "no PU of its own".to_owned() } else { owned.join(", ") };
        sentences.push(format!("{name} has {owned}"));
    }
    sentences.join("; ")
}
