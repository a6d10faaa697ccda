//! The pictures are well-formed, say in words what they show, and survive odd machines and hostile names.

#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_report::view::{ComparisonView, JobReport, Metric};
use nearmetal_report::{Moment, Surface, arms_svg, machine_svg, sizes_svg};
use nearmetal_units::Bytes;
use quick_xml::events::Event;

/// Names of the elements of a well-formed document; panics where it is not well-formed.
fn elements(text: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let (mut names, mut depth) = (vec![], 0);
    loop {
        match reader.read_event().unwrap_or_else(|error| panic!("{error} at {}", reader.buffer_position())) {
            Event::Start(tag) => {
                depth += 1;
                names.push(String::from_utf8(tag.name().as_ref().to_vec()).unwrap());
                tag.attributes().for_each(|attribute| drop(attribute.unwrap().unescape_value().unwrap()));
            }
            Event::Empty(tag) => {
                names.push(String::from_utf8(tag.name().as_ref().to_vec()).unwrap());
                tag.attributes().for_each(|attribute| drop(attribute.unwrap().unescape_value().unwrap()));
            }
            Event::Text(text) => drop(text.decode().unwrap()),
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "unclosed elements");
    names
}

fn all(view: &JobReport, surface: Surface) -> Vec<String> {
    let mut pictures: Vec<String> =
        [Moment::Before, Moment::After].map(|moment| machine_svg(view, moment, surface).unwrap()).to_vec();
    pictures.extend(view.metrics.iter().filter_map(|metric| arms_svg(view, &metric.id, surface)));
    pictures.extend(sizes_svg(view, surface));
    pictures
}

#[test]
fn every_picture_is_well_formed_and_described() {
    for view in [sample::sample(), sample::large_sample()] {
        let pictures = all(&view, Surface::Standalone);
        assert!(pictures.len() >= 5);
        for picture in pictures {
            let names = elements(&picture);
            assert_eq!(names[..3], ["svg", "title", "desc"]);
            assert!(picture.contains("role=\"img\"") && picture.contains("aria-labelledby"));
            assert!(!picture.contains("var("), "a standalone picture must not need a page's variables");
            assert!(!picture.contains("NaN") && !picture.contains("inf"));
        }
    }
}

#[test]
fn letters_say_what_colours_say() {
    let picture = machine_svg(&sample::sample(), Moment::After, Surface::Page).unwrap();
    for text in [">v0<", ">E<", ">I1<", ">PU 4<", ">vCPU<", ">emulator thread<", "nvme0n1 → disk vda"] {
        assert!(picture.contains(text), "`{text}` is missing");
    }
    assert!(picture.contains("PU 4 holds vCPU 0"), "the description names who is where");
    let before = machine_svg(&sample::sample(), Moment::Before, Surface::Page).unwrap();
    assert!(before.contains("unbound threads may run here") && before.contains("web1 floats"));
}

#[test]
fn names_from_outside_stay_text() {
    let mut view = sample::sample();
    let hostile = "</text><script>alert(1)</script>\"'&\u{1b}\u{0}<";
    view.guest.name = hostile.to_owned();
    view.arms.iter_mut().for_each(|arm| arm.name = hostile.to_owned());
    view.metrics.iter_mut().for_each(|metric| metric.label = hostile.to_owned());
    view.metrics.iter_mut().for_each(|metric| metric.unit = hostile.to_owned());
    view.slice_after.devices[0].name = hostile.to_owned();
    view.slice_after.devices[0].purpose = hostile.to_owned();
    view.host.as_mut().unwrap().block_devices[0].name = hostile.to_owned();
    for picture in all(&view, Surface::Page) {
        assert!(!elements(&picture).contains(&"script".to_owned()));
        assert!(!picture.contains('\u{1b}') && !picture.contains('\u{0}'));
    }
}

#[test]
fn odd_machines_are_drawn() {
    let mut view = sample::sample();
    view.host_after = None;
    // One node without PUs, one whose memory is not told, one PU offline.
    view.host.as_mut().unwrap().nodes[3].cpus = Default::default();
    view.host.as_mut().unwrap().processors.retain(|processor| processor.node != Some(3));
    view.host.as_mut().unwrap().nodes[1].memory_total = None;
    view.host.as_mut().unwrap().processors[1].online = false;
    let picture = machine_svg(&view, Moment::Before, Surface::Page).unwrap();
    elements(&picture);
    assert!(picture.contains("no PUs: memory only"));
    assert!(picture.contains("memory: unknown"));
    assert!(picture.contains("PU 1: offline"));
    // A kernel without NUMA.
    view.host.as_mut().unwrap().nodes.clear();
    let picture = machine_svg(&view, Moment::Before, Surface::Page).unwrap();
    elements(&picture);
    assert!(picture.contains(">no node<"));
    // Nothing at all.
    view.host.as_mut().unwrap().processors.clear();
    elements(&machine_svg(&view, Moment::Before, Surface::Page).unwrap());
}

#[test]
fn absurd_figures_do_not_break_a_picture() {
    let mut view = sample::sample();
    view.comparisons[0].ratio = Some(f64::INFINITY);
    view.comparisons[1].ratio = Some(1e300);
    view.comparisons[1].pair_ratios = vec![f64::NAN, -1.0, 1e300];
    view.comparisons[2].interval = Some(nearmetal_report::view::Bounds { low: f64::NAN, high: 1e18 });
    view.host.as_mut().unwrap().nodes[0].memory_total = Some(Bytes::new(1));
    view.slice_before.pages.as_mut().unwrap()[0].pages = u64::MAX;
    for picture in all(&view, Surface::Page) {
        elements(&picture);
        assert!(!picture.contains("NaN"));
    }
}

#[test]
fn a_chart_without_figures_is_no_chart() {
    let mut view = sample::sample();
    view.comparisons.clear();
    assert_eq!(arms_svg(&view, "fio-randrw-4k-iops", Surface::Page), None);
    assert_eq!(sizes_svg(&view, Surface::Page), None);
}

#[test]
fn the_chart_over_sizes_is_of_one_load() {
    let view = sample::sample();
    let mut more = view.clone();
    let iops = view.metric("fio-randrw-4k-iops").unwrap();
    let rows = view.comparisons.iter().filter(|row| row.metric == iops.id);
    // One size that the headline's load has too, and one beyond its sizes.
    for kib in [2, 64] {
        let (id, size) = (format!("another-{kib}k-iops"), Bytes::from_kib(kib));
        let label = format!("{size} sequential read");
        more.metrics.push(Metric { id: id.clone(), label, request_size: Some(size), ..iops.clone() });
        more.comparisons.extend(rows.clone().map(|row| ComparisonView { metric: id.clone(), ..row.clone() }));
    }
    let chart = sizes_svg(&view, Surface::Page);
    assert!(chart.is_some());
    assert_eq!(sizes_svg(&more, Surface::Page), chart);
}

/// Where an arm's name stands in a picture.
fn height(picture: &str, name: &str) -> f64 {
    let end = format!(">{name}</text>");
    let line = picture.lines().find(|line| line.ends_with(&end)).unwrap();
    line.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
}

#[test]
fn names_stand_at_the_ends_of_their_lines_also_above_bare_metal() {
    for ratio in [1.3, 1.01] {
        let mut view = sample::sample();
        for row in view.comparisons.iter_mut().filter(|row| row.subject == "planned" && row.reference == "bare") {
            (row.ratio, row.interval, row.pair_ratios) = (Some(ratio), None, vec![ratio]);
        }
        let picture = sizes_svg(&view, Surface::Page).unwrap();
        let [planned, bare, found] = ["as planned", "bare metal", "as found"].map(|name| height(&picture, name));
        assert!(bare - planned > 14.8 && found - bare > 14.8, "{planned}, {bare}, {found}");
        // What was paired, and the name.
        assert_eq!(picture.matches(r#"class="nm-fill-planned""#).count(), 2, "{picture}");
    }
}

/// To renew it: `cargo run -p nearmetal-report --example sample -- small > FILE`.
#[test]
fn the_small_picture_reads_as_its_golden() {
    let view = sample::small_sample();
    let picture = machine_svg(&view, Moment::After, Surface::Page).unwrap();
    assert_eq!(picture, include_str!("golden/machine.svg"), "tests/golden/machine.svg differs; found:\n{picture}");
}
