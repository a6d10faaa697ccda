//! A host is drawn whole, at any size, and no name from outside acts on its reader.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod invented;

use nearmetal_report::view::HostMap;
use nearmetal_report::{Style, Surface, host_picture, host_svg};
use nearmetal_units::{Bytes, PageSize};
use quick_xml::events::Event;

/// Panics where it is not well-formed; the titles in it.
fn titles(svg: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(svg);
    reader.config_mut().check_end_names = true;
    let (mut titles, mut inside) = (Vec::new(), false);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) => inside = tag.name().as_ref() == b"title",
            Event::Text(text) if inside => titles.push(text.decode().unwrap().into_owned()),
            Event::End(_) => inside = false,
            Event::Eof => return titles,
            _ => {}
        }
    }
}

fn text(map: &HostMap, width: usize, ascii: bool) -> String {
    host_picture(map, &Style { width, colour: false, ascii })
}

#[test]
fn every_pu_is_drawn_once_with_its_owner() {
    let host = invented::four_nodes();
    let svg = host_svg(&HostMap::new(&host), Surface::Standalone);
    let titles = titles(&svg);
    for processor in &host.processors {
        let own = format!("PU {}: ", processor.index);
        assert_eq!(titles.iter().filter(|title| title.starts_with(&own)).count(), 1, "{own}");
    }
    for wanted in ["PU 1: web1 (v)", "PU 0: web1 (E)", "PU 16: database (v)", "PU 5: free", "node 0 to node 3: "] {
        assert!(titles.iter().any(|title| title.starts_with(wanted)), "{wanted}");
    }
    for wanted in
        ["node 0", "socket 1", "63 VFs", "4 VFs", "floats, its threads may run anywhere", "web1 has 9 PUs of node 0"]
    {
        assert_eq!(svg.contains(wanted), wanted != "63 VFs", "{wanted}");
    }
    assert!(svg.contains(">Av<") && svg.contains(">AE<") && svg.contains(">Bv<"), "letters say what colours say");
    assert!(!svg.contains("var(") && !svg.contains("NaN") && svg.contains("prefers-color-scheme:dark"));
}

#[test]
fn large_hosts_are_drawn_whole() {
    let host = invented::sixty_four_nodes();
    let map = HostMap::new(&host);
    let svg = host_svg(&map, Surface::Standalone);
    assert_eq!(titles(&svg).iter().filter(|title| title.starts_with("PU ")).count(), 2048);
    assert_eq!(map.distances.len(), 64);
    let picture = text(&map, 160, false);
    assert!((0..64).all(|node| picture.contains(&format!(" node {node} · socket {} ", node / 8))));
    assert!(picture.chars().filter(|c| *c == 'A').count() >= 32);
}

#[test]
fn no_line_is_wider_than_the_terminal_and_ascii_is_ascii() {
    for host in [invented::four_nodes(), invented::sixty_four_nodes()] {
        let map = HostMap::new(&host);
        for width in [40, 72, 80, 100, 133, 200] {
            let picture = text(&map, width, false);
            let widest = picture.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{widest} of {width}");
            let ascii = text(&map, width, true);
            assert!(ascii.is_ascii());
            assert_eq!(ascii.lines().count(), picture.lines().count());
        }
    }
}

#[test]
fn letters_say_who_owns_what_without_colour() {
    let picture = text(&HostMap::new(&invented::four_nodes()), 100, false);
    for wanted in ["A web1", "B database", "C old & <floating> (floats)", "L3 AA AA AA AA", "▒"] {
        assert!(picture.contains(wanted), "{wanted}\n{picture}");
    }
}

#[test]
fn hugepages_of_others_are_shown_beside_guests_in_small_pages() {
    let mut host = invented::four_nodes();
    let eight_gib = Bytes::from_mib(8192);
    // The guest on node 1 has 8 GiB in small pages; somebody else has as much in hugepages.
    host.guests[2].residency[0].page_size = PageSize::SMALL;
    host.guests[2].residency[0].pages = vec![(1, 8 << 18)];
    host.nodes[1].pools.iter_mut().filter(|pool| pool.total > 0).for_each(|pool| pool.free = pool.total - 4096);
    // All that is in use on node 0 is its guest's.
    host.nodes[0].pools.iter_mut().filter(|pool| pool.total > 0).for_each(|pool| pool.free = pool.total - 8192);
    let map = HostMap::new(&host);
    assert_eq!(map.nodes[1].memory.guests, [(2, eight_gib)]);
    assert_eq!(map.nodes[1].memory.huge().1, eight_gib);
    assert_eq!(map.nodes[0].memory.huge().1, Bytes::ZERO);
    // Once in the node, once in the legend.
    let svg = host_svg(&map, Surface::Page);
    assert_eq!(svg.matches(r#"class="nm-hugeused""#).count(), 2, "{svg}");
    let picture = text(&map, 100, false);
    assert!(picture.matches('▓').count() > 1, "{picture}");
}

#[test]
fn what_is_not_known_is_said_and_names_stay_text() {
    let mut host = invented::four_nodes();
    let hostile = "</text><script>alert(1)</script>\u{1b}[2J\u{0}";
    host.system.hostname = Some(hostile.to_owned());
    host.guests[0].name = Some(hostile.to_owned());
    host.block_devices[0].name = hostile.to_owned();
    host.nodes[0].memory_total = None;
    host.nodes[1].memory_free = None;
    host.nodes[2].distances.clear();
    host.processors[3].online = false;
    let map = HostMap::new(&host);
    let svg = host_svg(&map, Surface::Page);
    titles(&svg);
    assert!(!svg.contains("<script") && !svg.contains('\u{1b}'));
    assert!(svg.contains("memory unknown") && svg.contains("PU 3: offline"));
    assert!(!svg.contains("Distances between nodes"), "not all are known");
    let picture = text(&map, 100, false);
    assert!(!picture.contains('\u{1b}') && picture.contains("memory unknown") && picture.contains("free: ?"));
    host.nodes.clear();
    host.processors.clear();
    let map = HostMap::new(&host);
    titles(&host_svg(&map, Surface::Page));
    text(&map, 80, true);
}
