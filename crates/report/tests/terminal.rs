//! The terminal's report: goldens, widths, ASCII, colour, hostile text.

mod sample;

use nearmetal_report::{Style, terminal};

const PLAIN: Style = Style { width: 100, colour: false, ascii: false };

/// Compares with a golden. To renew one: `cargo run -p nearmetal-report --example sample -- terminal 100 > FILE`.
fn golden(found: &str, expected: &str, name: &str) {
    if found != expected {
        let line = found.lines().zip(expected.lines()).position(|(one, other)| one != other);
        panic!("tests/golden/{name} differs from line {line:?} on; found:\n{found}");
    }
}

#[test]
fn the_report_reads_as_its_golden() {
    golden(&terminal(&sample::sample(), &PLAIN), include_str!("golden/terminal-100.txt"), "terminal-100.txt");
}

#[test]
fn the_report_in_ascii_reads_as_its_golden() {
    let style = Style { width: 64, ascii: true, ..PLAIN };
    let text = terminal(&sample::sample(), &style);
    assert!(text.is_ascii());
    golden(&text, include_str!("golden/terminal-64-ascii.txt"), "terminal-64-ascii.txt");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [0, 40, 41, 57, 72, 80, 99, 100, 140, 240] {
        let text = terminal(&sample::sample(), &Style { width, ..PLAIN });
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width.max(40), "{widest} at {width}");
        assert!(text.lines().all(|line| line == line.trim_end()), "spaces at a line's end at {width}");
        for words in ["0.62×", "0.58–0.66", "lab: emulated time", "8 of 8 as planned"] {
            assert!(text.contains(words), "`{words}` is missing at {width}");
        }
    }
}

#[test]
fn colour_changes_nothing_but_colour() {
    let coloured = terminal(&sample::sample(), &Style { colour: true, ..PLAIN });
    let mut plain = String::new();
    for (position, piece) in coloured.split('\u{1b}').enumerate() {
        plain.push_str(if position == 0 { piece } else { piece.split_once('m').unwrap().1 });
    }
    assert_eq!(plain, terminal(&sample::sample(), &PLAIN));
}

#[test]
fn text_from_outside_cannot_steer_the_terminal() {
    let mut view = sample::sample();
    view.guest.name = "web\u{1b}[2J\u{7}\r\u{202e}1\nsecond".to_owned();
    view.arms[3].name = "\u{9b}31m planned".to_owned();
    view.caveats = vec!["\u{1b}]0;title\u{7}".to_owned()];
    let text = terminal(&view, &PLAIN);
    assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'));
}

#[test]
fn a_mismatch_comes_before_any_ratio() {
    let mut view = sample::sample();
    view.verification[3].outcome = nearmetal_report::view::CheckOutcome::Mismatch;
    view.verification[3].found = Some("500 pages of 2 MiB on node 2, 12 on node 0".to_owned());
    let text = terminal(&view, &PLAIN);
    assert!(text.contains("web1 is not as planned: 1 of 11 read-backs differ"), "{text}");
    assert!(text.contains("guest memory: differs"), "{text}");
    assert!(text.contains("12 on node 0"), "{text}");
}

#[test]
fn unknown_is_said_and_is_no_zero() {
    let mut view = sample::sample();
    view.verification[0].outcome = nearmetal_report::view::CheckOutcome::CannotTell;
    view.verification[0].found = None;
    view.slice_before.pages = None;
    let text = terminal(&view, &PLAIN);
    assert!(text.contains("cannot tell; planned: PU 4; found: unknown"), "{text}");
    assert!(text.lines().any(|line| line.contains("pages") && line.contains("unknown")), "{text}");
    assert!(text.lines().any(|line| line.contains("guest") && line.matches('?').count() == 4), "{text}");
}
