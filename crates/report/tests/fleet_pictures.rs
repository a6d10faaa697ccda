//! Hosts before and after a plan are drawn whole, alike ones once; the page has every part; no name acts on its reader.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod fleets;

use nearmetal_fleet::{DeviceKind, FleetHost};
use nearmetal_report::fleet::{FleetReport, HOSTS_DRAWN};
use quick_xml::events::Event;

const HOSTILE: &str =
    "</text></style><script>alert('x')</script><img src=x onerror=\"alert(1)\">{{ page }}\u{1b}\u{202e}";

/// Panics where it is not well-formed; the titles in it.
fn titles(svg: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(svg);
    reader.config_mut().check_end_names = true;
    let (mut titles, mut title) = (Vec::new(), None);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) if tag.name().as_ref() == b"title" => title = Some(String::new()),
            Event::Text(text) => {
                if let Some(title) = &mut title {
                    title.push_str(&text.decode().unwrap());
                }
            }
            Event::End(_) => titles.extend(title.take()),
            Event::Eof => return titles,
            _ => {}
        }
    }
}

fn count(titles: &[String], start: &str) -> usize {
    titles.iter().filter(|title| title.starts_with(start)).count()
}

#[test]
fn every_pu_is_drawn_before_and_after_with_its_owner() {
    let told = fleets::told();
    let svg = told.report().host_svg("alpha").unwrap();
    let alpha = titles(&svg);
    for pu in 0..16 {
        assert_eq!(count(&alpha, &format!("PU {pu}: ")), 2, "PU {pu}");
    }
    for (wanted, times) in [
        ("PU 4: free", 1),
        ("PU 4: web", 1),
        ("PU 12: billing, not of the fleet", 2),
        ("PU 0: kept for the host", 2),
        ("PU 8: trading", 1),
        ("PU 9: idle for trading", 1),
        ("VFs of eth0: web has 1", 1),
        ("nvme0n1 (shared): web has 1", 1),
        ("billing: 6 GiB", 2),
    ] {
        assert_eq!(count(&alpha, wanted), times, "{wanted}\n{alpha:#?}");
    }
    let beta = titles(&told.report().host_svg("beta").unwrap());
    for (wanted, times) in [
        ("PU 8: database", 1),
        ("PU 12: database", 1),
        ("PU 2: vCPUs float over it", 1),
        ("PU 4: lonely, better left floating", 1),
        ("batch: 6 vCPUs float over the node", 1),
    ] {
        assert_eq!(count(&beta, wanted), times, "{wanted}\n{beta:#?}");
    }
    for wanted in [
        ">A<",
        ">B<",
        ">1<",
        ">H<",
        ">–<",
        "Before",
        "After the plan",
        "free pages: 0×2 MiB (add 2,048), 4×1 GiB",
        "2 of 3 free",
    ] {
        assert!(svg.contains(wanted), "`{wanted}`: letters and words say what colours say");
    }
    assert!(!svg.contains("var(") && !svg.contains("NaN") && svg.contains("prefers-color-scheme:dark"));
    assert_eq!(told.report().host_svg("gamma"), None);
}

#[test]
fn hosts_that_are_alike_are_drawn_once_and_counted() {
    let twelve = fleets::twelve_hosts();
    let svg = twelve.report().svg();
    let drawn = titles(&svg).iter().filter(|title| title.starts_with("PU 0: ")).count() / 2;
    assert!((1..12).contains(&drawn), "{drawn} of 12 drawn");
    let alike: usize = svg.split("and ").filter_map(|rest| rest.split_once(" host")?.0.parse::<usize>().ok()).sum();
    assert_eq!(drawn + alike, 12);
    assert!(svg.contains("alike that get the same"));
}

#[test]
fn more_hosts_than_are_drawn_are_counted_in_the_picture() {
    let mut many = fleets::many(14, 60);
    for (host, at) in many.fleet.hosts.iter_mut().zip(1u64..) {
        host.nodes[0].memory = fleets::gib(64 + at);
    }
    let report = FleetReport::new(&many.fleet, &many.plan, &[]);
    let svg = report.svg();
    assert_eq!(count(&titles(&svg), "PU 0: "), 2 * HOSTS_DRAWN);
    assert!(svg.contains("12 of 14 hosts drawn") && svg.contains("2 not drawn"), "the picture says what it leaves out");
    let page = report.html("fourteen", "today").unwrap();
    assert!(page.contains("12 of 14 hosts drawn") && page.contains("id=\"overview\""));
}

#[test]
fn refusals_that_are_alike_share_a_row_of_the_page() {
    let many = fleets::many(14, 400);
    let page = many.report().html("many", "today").unwrap();
    let rows = page.matches("<span class=\"bad\" aria-hidden=\"true\">").count();
    let refused = many.plan.refusals.len();
    assert!(rows > 0 && rows * 10 < refused, "{rows} rows for {refused} refusals");
    assert!(page.contains(" alike</small>"));
    let few = fleets::told();
    assert!(!few.report().html("few", "today").unwrap().contains(" alike</small>"));
}

#[test]
fn a_host_the_plan_leaves_alone_is_drawn_once() {
    let mut told = fleets::told();
    told.plan.placements.clear();
    told.plan.pools.clear();
    told.plan.fragmentation.clear();
    let svg = told.report().host_svg("alpha").unwrap();
    assert_eq!(count(&titles(&svg), "PU 4: free"), 1);
    assert!(svg.contains("the plan changes nothing here"));
}

#[test]
fn a_host_without_a_picture_is_drawn_from_what_it_has_left() {
    let told = fleets::told();
    let report = FleetReport::new(&told.fleet, &told.plan, &[]);
    let svg = report.host_svg("alpha").unwrap();
    let titles = titles(&svg);
    assert_eq!(count(&titles, "PU 4: web"), 1);
    assert_eq!(count(&titles, "PU 12: "), 0, "what others hold is not known");
    assert!(svg.contains("what others hold is not known here"));
}

#[test]
fn the_overview_has_every_host_and_what_is_refused() {
    let many = fleets::many(300, 3000);
    let svg = many.report().overview_svg();
    let titles = titles(&svg);
    assert_eq!(count(&titles, "rack"), 300);
    assert!(titles.iter().any(|title| title.contains("PUs 100 % used")));
    assert!(svg.contains("Not placed: ") && svg.contains(" alike"));
    let few = fleets::told();
    let svg = few.report().overview_svg();
    assert!(svg.contains(">alpha<") && svg.contains("archive") && svg.contains("8 GiB more free"));
}

#[test]
fn the_page_holds_every_part_in_order_and_loads_nothing() {
    let told = fleets::told();
    let page = told.report().html("two hosts", "2026-01-01T00:00:00Z").unwrap();
    let parts = ["<h1>", "refused", "hosts", "placed", "pools", "levels", "floating", "left", "search", "assumptions"];
    let parts = parts.map(|part| if part == "<h1>" { part.to_owned() } else { format!("id=\"{part}\"") });
    let places: Vec<_> =
        parts.iter().map(|part| page.find(part.as_str()).unwrap_or_else(|| panic!("`{part}` is missing"))).collect();
    assert!(places.is_sorted(), "{places:?}");
    for forbidden in
        ["<script", "<link", "<img", "<iframe", "@import", "url(http", "src=", "javascript:", "id=\"overview\""]
    {
        assert!(!page.contains(forbidden), "`{forbidden}` in the page");
    }
    assert!(page.contains("default-src 'none'"));
    // Names inside pictures must not meet in one page.
    let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let different: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(ids.len(), different.len(), "{ids:?}");
}

#[test]
fn no_name_from_outside_acts_in_a_picture_or_a_page() {
    let mut told = fleets::told();
    for vm in ["web", "archive"] {
        let number = told.fleet.vms.iter().position(|own| own.name == vm).unwrap();
        told.fleet.vms[number].name = format!("{vm}{HOSTILE}");
    }
    told.plan.placements[0].vm = format!("web{HOSTILE}");
    told.plan.refusals[0].vm = format!("archive{HOSTILE}");
    told.plan.refusals[0].remedy.as_mut().unwrap().change = HOSTILE.to_owned();
    told.plan.headline = HOSTILE.to_owned();
    told.plan.assumptions = vec![HOSTILE.to_owned()];
    let alpha: &mut FleetHost = &mut told.fleet.hosts[0];
    alpha.name = format!("alpha{HOSTILE}");
    for device in &mut alpha.devices {
        if let DeviceKind::VirtualFunctions { of } = &mut device.kind {
            *of = HOSTILE.to_owned();
        }
    }
    for placement in told.plan.placements.iter_mut().filter(|placement| placement.host == "alpha") {
        placement.host = format!("alpha{HOSTILE}");
    }
    let report = told.report();
    let page = report.html(HOSTILE, HOSTILE).unwrap();
    for text in [report.svg(), report.overview_svg(), page] {
        assert!(!text.contains("<script") && !text.contains("<img"), "markup from outside");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
        assert_eq!(text.matches("</style>").count(), 1, "a name closed the style");
    }
    titles(&report.svg());
    titles(&report.overview_svg());
}

#[test]
fn the_same_plan_is_drawn_the_same() {
    let (one, other) = (fleets::told(), fleets::told());
    assert_eq!(one.report().svg(), other.report().svg());
    assert_eq!(one.report().html("t", "now").unwrap(), other.report().html("t", "now").unwrap());
}
