//! Tiles: chart, page, terminal, headline. Every figure is invented.

#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_report::view::JobReport;
use nearmetal_report::{Style, Surface, headline, html_page, terminal, tiles_svg};
use quick_xml::events::Event;
use sample::tiles::tiles;

fn is_well_formed(text: &str) {
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    while reader.read_event().unwrap() != Event::Eof {}
}

fn on_a_terminal(view: &JobReport) -> String {
    terminal(view, &Style { width: 100, colour: false, ascii: false })
}

#[test]
fn the_headline_says_how_many_each_way_held_and_what_ended_it() {
    let said = headline(&tiles(false));
    assert_eq!(
        said.sentence(),
        "Virtio on a bridge held 1 tile (score 99.0); virtual functions held all 2 tiles (score 198.5)"
    );
    assert!(said.below.iter().any(|line| line.contains("quality of service failed in 3 of 3 samples")), "{said:?}");
}

#[test]
fn a_way_without_figures_may_hold_more_and_is_not_said_to_hold_all() {
    let mut view = tiles(false);
    let held = &mut view.tiles.as_mut().unwrap().held;
    (held[0].open_ended, held[0].without_figures) = (true, true);
    assert!(headline(&view).sentence().starts_with("Virtio on a bridge held 1 tile or more (score"));
    assert!(html_page(&view).unwrap().contains("1 tile or more"));
    let held = &mut view.tiles.as_mut().unwrap().held;
    (held[0].tiles, held[0].score) = (0, None);
    assert!(headline(&view).sentence().contains("held an unknown number of tiles;"));
}

#[test]
fn nothing_of_a_lab_is_shown_without_saying_that_it_is_emulated_and_at_which_factor() {
    let lab = tiles(true);
    let words = "Emulated, at 0.01 times the usual rates";
    assert!(headline(&lab).sentence().starts_with(words), "{:?}", headline(&lab));
    assert!(headline(&lab).sentence().contains("lab: emulated time"));
    let page = html_page(&lab).unwrap();
    assert!(page.contains(words) && page.contains("No verdict here on quality of service is one of silicon"));
    assert!(on_a_terminal(&lab).contains("emulated, at 0.01 times the usual rates: lab: emulated time"));
    assert!(tiles_svg(&lab, Surface::Standalone).unwrap().contains("lab: emulated time"));
    for text in [html_page(&tiles(false)).unwrap(), on_a_terminal(&tiles(false))] {
        assert!(!text.to_lowercase().contains("emulated, at"));
    }
}

#[test]
fn a_row_says_what_failed_and_a_way_what_ended_it() {
    let view = tiles(false);
    for text in [html_page(&view).unwrap(), on_a_terminal(&view)] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in
            ["quality of service failed in 3 of 3", "61.0 % within 3 s", "88.0 % of what it was asked", "171.0"]
        {
            assert!(text.contains(words), "{words} is missing");
        }
    }
    let mut without = view;
    let rows = &mut without.tiles.as_mut().unwrap().rows;
    (rows[2].score, rows[2].samples, rows[2].failed) = (None, 0, 3);
    assert!(on_a_terminal(&without).contains("no figures; 3"), "{}", on_a_terminal(&without));
}

#[test]
fn the_chart_counts_tiles_and_is_well_formed() {
    for lab in [true, false] {
        let picture = tiles_svg(&tiles(lab), Surface::Standalone).unwrap();
        is_well_formed(&picture);
        assert!(picture.contains("over the number of tiles") && picture.contains(">tiles</text>"), "{picture}");
        assert!(!picture.contains("nodes"), "{picture}");
    }
    let mut none = tiles(true);
    none.tiles = None;
    assert_eq!(tiles_svg(&none, Surface::Page), None);
}

#[test]
fn names_that_try_to_act_do_not() {
    const HOSTILE: &str = "</text><script>alert('x')</script>\"&\u{1b}[2J";
    let mut view = tiles(true);
    view.arms.iter_mut().for_each(|arm| arm.name.push_str(HOSTILE));
    let own = view.tiles.as_mut().unwrap();
    own.over.load.push_str(HOSTILE);
    own.held.iter_mut().for_each(|held| held.why.push_str(HOSTILE));
    own.rows
        .iter_mut()
        .flat_map(|row| row.worst.iter_mut().chain(&mut row.least))
        .for_each(|words| words.push_str(HOSTILE));
    own.rows[0].busy_by_part[0].part.push_str(HOSTILE);
    let page = html_page(&view).unwrap();
    assert!(!page.contains("<script>alert"));
    assert!(!on_a_terminal(&view).contains('\u{1b}'));
    is_well_formed(&tiles_svg(&view, Surface::Standalone).unwrap());
}
