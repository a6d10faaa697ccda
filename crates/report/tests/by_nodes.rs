//! One guest over more and more nodes: chart, page, terminal, headline, and the papers' orders. Every figure is invented.

#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_report::papers::order_said;
use nearmetal_report::view::{Bounds, JobReport, MODELLED, RatioView};
use nearmetal_report::{Style, Surface, by_nodes_svg, headline, html_page, terminal};
use quick_xml::events::Event;
use sample::nodes::{hostile_nodes, nodes};

/// How often the names of the elements of a well-formed document are this one; panics where it is not well-formed.
fn count_of(element: &str, text: &str) -> usize {
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let mut count = 0;
    loop {
        match reader.read_event().unwrap() {
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == element.as_bytes() => count += 1,
            Event::Eof => return count,
            _ => {}
        }
    }
}

/// What the paper's statement of this section is answered.
fn here(view: &JobReport, section: &str) -> String {
    let said = order_said(view.by_nodes.as_ref().unwrap(), &view.arms);
    said.into_iter().find(|order| order.section.starts_with(section)).unwrap().here
}

/// Sets a mode's ratio to native in the rate at 8 nodes.
fn set_ratio(view: &mut JobReport, arm: usize, ratio: f64) {
    let point = &mut view.by_nodes.as_mut().unwrap().quantities[0].series[arm].points[3];
    point.to_bare = Some(RatioView { ratio, interval: Bounds { low: ratio * 0.97, high: ratio * 1.03 }, n: 6 });
}

#[test]
fn the_chart_has_a_panel_for_each_quantity_and_a_line_for_each_mode() {
    let picture = by_nodes_svg(&nodes(true), Surface::Standalone).unwrap();
    assert_eq!(count_of("polyline", &picture), 4 * 5);
    assert!(!picture.contains("var(") && !picture.contains("NaN") && !picture.contains("inf\""));
    let places =
        ["Accesses that stay on their node</tspan>", "Mean distance of an access</tspan>", "Loads per second</tspan>"]
            .map(|label| picture.find(label).unwrap_or_else(|| panic!("`{label}` is missing")));
    assert!(places.is_sorted(), "what was counted comes before emulated time");
    // Emulated time is grey, and is the only one so called.
    let (counted, timed) = picture.split_at(places[2]);
    assert!(counted.contains("nm-series nm-stroke-planned") && !timed.contains("nm-stroke-planned"));
    assert!(timed.contains("lab: emulated time") && !counted.contains("lab: emulated time"));
    assert_eq!(counted.matches("lab: counted, not timed").count(), 3);
    let silicon = by_nodes_svg(&nodes(false), Surface::Page).unwrap();
    assert!(!silicon.contains("lab:") && silicon.matches("nm-series nm-stroke-planned").count() == 4);
}

#[test]
fn what_a_model_gives_is_called_a_models_everywhere() {
    let mut view = nodes(true);
    view.by_nodes.as_mut().unwrap().quantities[2].unit = MODELLED.to_owned();
    let picture = by_nodes_svg(&view, Surface::Standalone).unwrap();
    let page = html_page(&view).unwrap();
    let text = terminal(&view, &Style { width: 100, colour: false, ascii: false });
    for (name, text) in [("chart", picture), ("page", page), ("terminal", text)] {
        assert!(text.contains("lab: a model"), "{name}: {text}");
    }
}

#[test]
fn names_at_the_ends_of_lines_do_not_overlap() {
    let picture = by_nodes_svg(&nodes(true), Surface::Page).unwrap();
    let names = ["native", "default", "pinned", "guest cells", "one VM on each node"];
    let mut heights: Vec<f64> = picture
        .lines()
        .filter(|line| line.starts_with("<text") && names.iter().any(|name| line.ends_with(&format!(">{name}</text>"))))
        .map(|line| line.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
        .collect();
    heights.sort_by(f64::total_cmp);
    assert_eq!(heights.len(), 4 * 5);
    assert!(heights.windows(2).all(|pair| pair[1] - pair[0] > 14.9), "{heights:?}");
}

#[test]
fn a_chart_without_figures_is_no_chart() {
    let mut view = nodes(true);
    view.by_nodes.as_mut().unwrap().quantities.iter_mut().for_each(|quantity| quantity.series.clear());
    assert_eq!(by_nodes_svg(&view, Surface::Page), None);
    assert!(headline(&view).sentence().starts_with("big1 over 8 nodes: measured, and nothing can be said of it"));
    assert!(here(&view, "3.5.8").starts_with("Not measured here"));
    view.by_nodes = None;
    assert_eq!(by_nodes_svg(&view, Surface::Page), None);
}

#[test]
fn hostile_names_and_absurd_figures_stay_text_and_figures() {
    let view = hostile_nodes();
    for surface in [Surface::Page, Surface::Standalone] {
        let picture = by_nodes_svg(&view, surface).unwrap();
        assert_eq!(count_of("script", &picture), 0);
        assert!(!picture.contains('\u{1b}') && !picture.contains('\u{202e}') && !picture.contains("NaN"));
        assert!(picture.contains("hollow: one sample") && picture.contains("nm-hollow nm-stroke-other"));
    }
    let page = html_page(&view).unwrap();
    assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert!(page.contains("one sample") && page.contains("not measured"));
    let text = terminal(&view, &Style { width: 100, colour: false, ascii: false });
    assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'));
}

#[test]
fn the_headline_tells_what_was_counted_in_a_lab_and_adds_time_on_silicon() {
    let lab = headline(&nodes(true));
    assert_eq!(
        lab.sentence(),
        "big1 over 8 nodes: 97.9 % of its accesses stay on their node (guest cells), 13.1 % (default) — lab: counted, not timed"
    );
    assert_eq!(
        lab.below[1],
        "In the lab's emulated time: 0.53× (0.50–0.55) of native over 8 nodes, 0.18× (0.17–0.18) default"
    );
    assert_eq!(
        headline(&nodes(false)).sentence(),
        "big1 over 8 nodes: 97.9 % of its accesses stay on their node (guest cells), 13.1 % (default); \
         it does 0.53× of native (95 % interval 0.50–0.55), default 0.18×"
    );
    let mut timed = nodes(true);
    timed.by_nodes.as_mut().unwrap().quantities.truncate(1);
    let sentence = headline(&timed).sentence();
    assert!(sentence.starts_with("big1 over 8 nodes does 0.53× of native"), "{sentence}");
    assert!(sentence.ends_with(" — lab: emulated time"), "{sentence}");
}

/// The measurement of these modes alone.
fn only(ids: &[&str], lab: bool) -> JobReport {
    let mut view = nodes(lab);
    view.arms.retain(|arm| ids.contains(&arm.id.as_str()));
    let by_nodes = view.by_nodes.as_mut().unwrap();
    by_nodes.quantities.iter_mut().for_each(|quantity| quantity.series.retain(|one| ids.contains(&one.arm.as_str())));
    view
}

#[test]
fn of_modes_that_were_left_out_nothing_is_said() {
    let some = ["bare-slice", "default", "per-node"];
    assert_eq!(
        headline(&only(&some, true)).sentence(),
        "big1 over 8 nodes: 99.7 % of its accesses stay on their node (one VM on each node), 13.1 % (default) — lab: counted, not timed"
    );
    let mut timed = only(&["bare-slice", "default"], true);
    timed.by_nodes.as_mut().unwrap().quantities.truncate(1);
    let sentence = headline(&timed).sentence();
    assert!(sentence.starts_with("big1 over 8 nodes (default) does 0.18× of native"), "{sentence}");
    let said = here(&only(&some, false), "3.5.4");
    assert!(said.contains("Of the paper's order this much: one VM on each node is faster than default."), "{said}");
    assert!(!said.contains("The order is the paper's"), "{said}");
    let said = here(&only(&some, false), "3.5.6");
    assert!(said.contains("By means alone, the order of those measured is the paper's"), "{said}");
    let said = here(&only(&["bare-slice", "per-node"], false), "3.5.4");
    assert!(!said.contains("No difference") && !said.contains("rder is"), "{said}");
}

#[test]
fn a_lab_concludes_nothing_about_time() {
    for order in nodes(true).by_nodes.unwrap().papers {
        assert!(order.here.ends_with("of time it shows nothing."), "{}", order.here);
        assert!(!order.here.contains("the paper's"), "{}", order.here);
    }
    let said = here(&nodes(true), "3.5.4");
    let order =
        "native 99.8 % or one VM on each node 99.7 % or guest cells 97.9 %, then default 13.1 % or pinned 12.6 %";
    assert!(said.contains(order), "{said}");
}

#[test]
fn on_silicon_the_order_is_concluded_only_where_the_intervals_are_apart() {
    let mut view = nodes(false);
    for section in ["3.5.4", "3.5.6", "3.5.7", "3.5.8"] {
        let said = here(&view, section);
        assert!(said.contains("rder is the paper's"), "{said}");
        assert!(said.ends_with("Compare the order, not the percentages."), "{said}");
    }
    set_ratio(&mut view, 3, 0.84);
    assert!(here(&view, "3.5.4").contains("No difference shown between one VM on each node and the next VM"));
    assert!(here(&view, "3.5.8").contains("No difference shown between the narrowest and the widest VM"));
    set_ratio(&mut view, 3, 0.95);
    assert!(here(&view, "3.5.4").contains("not the paper's: faster than one VM on each node: guest cells"));
    assert!(here(&view, "3.5.8").contains("not the paper's: the widest VM is nearer to native"));
    set_ratio(&mut view, 4, 1.0);
    assert!(here(&view, "3.5.7").contains("At 8 nodes, no difference shown"));
    // Beyond 4 nodes nothing is said where nothing was measured.
    view.by_nodes.as_mut().unwrap().nodes.truncate(3);
    assert!(here(&view, "3.5.6").starts_with("Not measured here"));
}

#[test]
fn the_page_has_the_chart_every_figure_and_the_papers_statements() {
    let page = html_page(&nodes(true)).unwrap();
    for id in ["by-nodes-title", "by-nodes-narrow-title"] {
        assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
    }
    let section = &page[page.find("id=\"by-nodes\"").unwrap()..page.find("id=\"compared\"").unwrap()];
    let figures =
        ["4,100,000", "3,936,000–4,305,000", "0.53× (0.50–0.55)", "within 18 % of native", "section 3.5.8; figure 17"];
    for text in figures {
        assert!(section.contains(text), "`{text}` is missing");
    }
    assert!(section.contains("their absolute values are not in the text"));
    assert!(!page.contains("Nothing was compared in pairs"));
    assert!(!html_page(&sample::sample()).unwrap().contains("id=\"by-nodes\""));
}

#[test]
fn the_terminals_section_reads_as_its_golden() {
    let text = terminal(&nodes(true), &Style { width: 100, colour: false, ascii: false });
    let found = &text[text.find("Over more and more nodes").unwrap()..];
    assert_eq!(found, include_str!("golden/nodes-100.txt"), "tests/golden/nodes-100.txt differs; found:\n{found}");
    for width in [40, 57, 80] {
        let text = terminal(&nodes(true), &Style { width, colour: false, ascii: true });
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= width), "{width}");
    }
}

#[test]
fn it_survives_json() {
    let view = nodes(true);
    assert_eq!(JobReport::from_json(&serde_json::to_string(&view).unwrap()).unwrap(), view);
}
