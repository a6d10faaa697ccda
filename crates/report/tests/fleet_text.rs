//! A fleet's plan on a terminal: goldens, widths, sizes, hostile names.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod fleets;

use nearmetal_report::Style;
use nearmetal_report::fleet::{Details, FleetReport, what_if_text};

const PLAIN: Style = Style { width: 100, colour: false, ascii: false };

/// Compares with a golden. To renew one: `cargo run -p nearmetal-report --example fleet -- told text 100 > FILE`, or
/// `what-if 100`.
fn golden(found: &str, expected: &str, name: &str) {
    if found != expected {
        let line = found.lines().zip(expected.lines()).position(|(one, other)| one != other);
        panic!("tests/golden/{name} differs from line {line:?} on; found:\n{found}");
    }
}

#[test]
fn a_plan_reads_as_its_golden() {
    let told = fleets::told();
    golden(&told.report().text(&Details::new(PLAIN)), include_str!("golden/fleet-100.txt"), "fleet-100.txt");
}

#[test]
fn a_what_if_reads_as_its_golden() {
    let (before, after) = (fleets::told(), fleets::told_without_beta());
    let text = what_if_text(&before.report(), &after.report(), &Details::new(PLAIN));
    golden(&text, include_str!("golden/fleet-what-if-100.txt"), "fleet-what-if-100.txt");
    let same = what_if_text(&before.report(), &before.report(), &Details::new(PLAIN));
    assert!(same.contains("nothing changes for the others") && !same.contains("Refused now"), "{same}");
}

#[test]
fn no_line_is_wider_than_the_terminal_and_ascii_is_ascii() {
    let (told, other) = (fleets::told(), fleets::told_without_beta());
    for width in [0, 40, 57, 72, 80, 100, 133, 200] {
        for all in [false, true] {
            let details = Details { all, ..Details::new(Style { width, ..PLAIN }) };
            let ascii = Details { style: Style { width, ascii: true, ..PLAIN }, ..details };
            let what_if = what_if_text(&told.report(), &other.report(), &details);
            for text in [told.report().text(&details), what_if] {
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= width.max(40), "{widest} at {width}");
                assert!(text.lines().all(|line| line == line.trim_end()), "spaces at a line's end at {width}");
            }
            assert!(told.report().text(&ascii).is_ascii());
        }
    }
}

#[test]
fn many_vms_are_counted_and_the_rest_is_said_to_be_elsewhere() {
    let many = fleets::many(60, 700);
    let text = many.report().text(&Details::new(PLAIN));
    assert!(text.lines().count() < 90, "{} lines", text.lines().count());
    for wanted in ["`--format json`", "`--details`", "one node holds all its vCPUs and memory", "alike", "stranded on"]
    {
        assert!(text.contains(wanted), "`{wanted}` is missing:\n{text}");
    }
    assert_eq!(text.matches("┼").count(), 5 + 3 + 6, "three tables: VMs, levels, nodes");
    let all = many.report().text(&Details { all: true, ..Details::new(PLAIN) });
    for vm in &many.fleet.vms {
        assert!(all.contains(&vm.name), "{} is missing from the details", vm.name);
    }
    assert!(!all.contains("`--details`"));
}

#[test]
fn a_search_says_how_it_is_repeated() {
    let mut told = fleets::told();
    for (steps, done, stopped_early, wanted) in [
        (20_000, 1_234, true, "1,234 of 20,000 steps: the time budget ended it"),
        (500, 500, false, "seed 7, all 500 steps"),
        (500, 20, false, "20 of 500 steps: nothing was left to improve"),
        (0, 0, false, "no steps of improvement"),
    ] {
        told.plan.search = nearmetal_fleet::SearchRecord { seed: 7, steps, done, stopped_early };
        let text = told.report().text(&Details::new(PLAIN));
        assert!(text.contains(wanted), "`{wanted}` is missing:\n{text}");
        assert!(text.contains("the same fleet, seed 7,"));
    }
}

#[test]
fn names_from_outside_cannot_steer_the_terminal() {
    let mut told = fleets::told();
    let hostile = "web\u{1b}[2J\u{7}\r\u{202e}1\nsecond";
    told.plan.placements[0].vm = hostile.to_owned();
    told.plan.placements[1].host = hostile.to_owned();
    told.plan.refusals[0].reason = hostile.to_owned();
    told.plan.assumptions[0] = hostile.to_owned();
    told.plan.headline = hostile.to_owned();
    let text = told.report().text(&Details::new(PLAIN));
    assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'));
}

#[test]
fn a_plan_of_another_fleet_is_told_as_it_is() {
    let told = fleets::told();
    let nothing = nearmetal_fleet::Fleet::default();
    let report = FleetReport::new(&nothing, &told.plan, &told.pictures());
    let text = report.text(&Details::new(PLAIN));
    assert!(text.contains("database") && text.contains("archive"), "{text}");
    assert_eq!(report.host_svg("alpha"), None);
    report.svg();
    report.overview_svg();
    report.html("t", "now").unwrap();
}
