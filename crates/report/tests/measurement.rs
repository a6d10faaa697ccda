//! A measurement alone: a race, and several guests at once. Every figure is invented.

#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_report::view::{
    AdviceKind, AdviceView, Bounds, CeilingRow, CountRow, GuestShare, IncompleteArm, JobReport, LeftOutRow, RaceArm,
    RaceReadBack, RaceView, Rate, RatioView, TenantView, TogetherView,
};
use nearmetal_report::{Surface, headline, html_page, race_svg, together_svg};
use nearmetal_stats::Fate;
use nearmetal_units::{Bytes, PageSize};
use sample::alone;

fn times(ratio: f64) -> RatioView {
    RatioView { ratio, interval: Bounds { low: ratio * 0.9, high: ratio * 1.1 }, n: 6 }
}

fn way(title: &str, fate: Option<Fate>, to_reference: Option<RatioView>) -> RaceArm {
    RaceArm {
        id: title.replace(' ', "-"),
        title: title.to_owned(),
        read_back: RaceReadBack::Shown { evidence: vec!["fdinfo 22: O_DIRECT".to_owned()] },
        cannot_win: None,
        fate,
        peer_bound: None,
        rounds: 6,
        median: Some(Rate { value: 2377.0, unit: "IOPS".to_owned() }),
        to_reference,
        to_bare: None,
    }
}

fn race() -> JobReport {
    let mut lost = way("native", None, None);
    lost.read_back = RaceReadBack::NotShown { why: "worker threads served it".to_owned() };
    (lost.rounds, lost.median) = (0, None);
    let arms = vec![
        way("QEMU's default", Some(Fate::Racing), None),
        way("io_uring", Some(Fate::Racing), Some(times(1.5))),
        way("threads", Some(Fate::ShownWorse { look: 0, than: 1 }), Some(times(0.8))),
        lost,
    ];
    let race = RaceView {
        ways: "ways to a disk on a drive".to_owned(),
        thing: "disk".to_owned(),
        load: Some("4 KiB random".to_owned()),
        quantity: "IOPS".to_owned(),
        reference_name: "QEMU's default".to_owned(),
        reference: 0,
        winner: Some(1),
        arms,
        looks: vec![4],
        error: 0.05,
        slack: Some(1.2),
        took: 700.0,
        advice: Some(AdviceView {
            kind: AdviceKind::Use,
            arm: Some("io_uring".to_owned()),
            to_reference: Some(times(1.4)),
            to_bare: Some(times(0.7)),
            definition: Some("<driver name='qemu' io='io_uring'/>".to_owned()),
            further: vec!["and on the host: kyber as the scheduler".to_owned()],
        }),
        left_out: vec![LeftOutRow { what: "unsafe".to_owned(), why: "loses data".to_owned() }],
        effects: Vec::new(),
        ceiling: vec![CeilingRow {
            test: "a test".to_owned(),
            unit: "IOPS".to_owned(),
            unconfined: vec![9000.0],
            confined: vec![],
        }],
    };
    JobReport { race: Some(race), ..alone() }
}

fn together() -> JobReport {
    let share = |guest: &str, ratio| GuestShare {
        guest: guest.to_owned(),
        ratio,
        guest_rate: Some(500.0),
        bare_rate: Some(1000.0),
    };
    let row = |count: u32, ratio| CountRow {
        beyond_noise: false,
        count,
        ratio: Some(times(ratio)),
        guests_rate: Some(500.0 * f64::from(count)),
        bare_rate: Some(1000.0 * f64::from(count)),
        guests_gain: Some(f64::from(count)),
        bare_gain: None,
        peer_bound: (count == 2).then_some(true),
        shares: vec![share("w0", Some(times(0.6))), share("w1", None)],
    };
    let tenant = |guest: &str| TenantView {
        guest: guest.to_owned(),
        cpus: "4-5".parse().unwrap(),
        nodes: "2".parse().unwrap(),
        page_size: Some(PageSize::HUGE_2M),
        cpus_on_top: "6".parse().unwrap(),
        device: "/dev/nvme0n1".to_owned(),
        region: Some(Bytes::from_mib(512)),
        placement: vec!["CPU 0/KVM: PU 4".to_owned()],
    };
    let together = TogetherView {
        load: "4 KiB random".to_owned(),
        unit: "IOPS".to_owned(),
        counts: vec![row(1, 0.6), row(2, 0.5)],
        ceiling: Some(3000.0),
        least_overlap: Some(0.91),
        overlap_limit: Some(0.8),
        clocks_within: Some(0.5),
    };
    let incomplete =
        vec![IncompleteArm { arm: "guests".to_owned(), failed: 1, samples: 9, why: "the agent timed out".to_owned() }];
    JobReport { together: Some(together), tenants: vec![tenant("w0"), tenant("w1")], incomplete, ..alone() }
}

/// What a reader of the page reads, a line an element; pictures are left out.
fn words(page: &str) -> String {
    let mut rest = &page[page.find("<main>").unwrap()..];
    let mut text = String::new();
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        if rest[start..].starts_with("<svg") {
            rest = &rest[start + rest[start..].find("</svg>").unwrap() + 6..];
            continue;
        }
        let end = start + rest[start..].find('>').unwrap();
        let tag = &rest[start..end];
        let inline = ["<span", "</span", "<b", "</b", "<small", "</small"].iter().any(|name| tag.starts_with(name));
        text.push_str(if inline { " " } else { "\n" });
        rest = &rest[end + 1..];
    }
    for (written, read) in [("&#x27;", "'"), ("&#x2f;", "/"), ("&lt;", "<"), ("&gt;", ">")] {
        text = text.replace(written, read);
    }
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty()).map(|line| line + "\n").collect()
}

#[test]
fn the_page_of_a_race_reads_as_its_golden() {
    let found = words(&html_page(&race()).unwrap());
    assert_eq!(found, include_str!("golden/race.txt"), "tests/golden/race.txt differs; found:\n{found}");
}

#[test]
fn the_page_of_several_guests_has_every_count_and_every_guest() {
    let page = html_page(&together()).unwrap();
    let text = words(&page);
    for line in [
        "1 guest alone",
        "2 guests at once, peer-bound",
        "w1: read back while it ran",
        "fewer than two pairs",
        "2.00 and unknown",
        "The ceiling: 3,000 IOPS with all at once on all PUs, without a guest.",
        "Side by side: 91 % or more of every sample that counts; 80 % is the limit; clocks known to 0.5 ms.",
        "node 2, 2 MiB pages",
    ] {
        assert!(text.contains(line), "`{line}` is not in:\n{text}");
    }
    assert!(text.contains("The arm `guests` is incomplete: 1 of its 9 samples failed"));
    assert_eq!(page.matches("id=\"together-title\"").count(), 1, "a chart for wide screens");
    assert_eq!(page.matches("id=\"together-narrow-title\"").count(), 1, "and one for narrow ones");
}

#[test]
fn a_measurement_has_nothing_that_only_a_job_has() {
    for view in [race(), together(), alone()] {
        let page = html_page(&view).unwrap();
        for section in ["slice", "plan", "diff", "readback", "rollback"] {
            assert!(!page.contains(&format!("id=\"{section}\"")), "{section}");
        }
        assert!(page.contains("lab: emulated time") && !page.contains("Rolled back"));
        assert!(!page.contains("<script") && !page.contains("NaN"));
        let text = serde_json::to_string(&view).unwrap();
        assert_eq!(JobReport::from_json(&text).unwrap(), view, "it survives JSON");
    }
    assert!(headline(&alone()).sentence().starts_with("web1: measured, and nothing can be said of it"));
}

#[test]
fn without_the_plans_arm_the_headline_tells_that_of_another() {
    let without = |left_out: &[&str]| {
        let mut view = sample::sample();
        view.arms.retain(|arm| !left_out.contains(&arm.id.as_str()));
        view.comparisons
            .retain(|row| !left_out.contains(&row.subject.as_str()) && !left_out.contains(&row.reference.as_str()));
        headline(&view).sentence()
    };
    let as_found = without(&["planned"]);
    assert!(as_found.starts_with("web1 as found does ") && !as_found.contains("up from"), "{as_found}");
    let by_hand = without(&["planned", "as-found"]);
    assert!(by_hand.starts_with("web1 (virt-install) does "), "{by_hand}");
}

#[test]
fn the_headline_of_a_race_claims_what_the_fresh_pairs_showed() {
    let with = |kind: AdviceKind| {
        let mut view = race();
        view.race.as_mut().unwrap().advice.as_mut().unwrap().kind = kind;
        headline(&view).sentence()
    };
    assert_eq!(
        with(AdviceKind::Use),
        "web1: io_uring does 1.40× of QEMU's default (95 % interval 1.26–1.54) — lab: emulated time"
    );
    assert!(with(AdviceKind::NoneFaster).contains("no way was shown faster than QEMU's default; the best, io_uring"));
    assert!(with(AdviceKind::Unknown).contains("no winner that was measured again"));
    // A lab that counts shows instructions beside, and the ways raced by their rate all the same.
    let mut counting = JobReport { race: race().race, ..sample::sample() };
    let headline_metric = counting.headline_metric.clone().unwrap();
    counting.metrics.iter_mut().filter(|own| own.id == headline_metric).for_each(|own| own.higher_is_better = false);
    assert!(headline(&counting).sentence().ends_with(" — lab: emulated time"));
    counting.race = None;
    assert!(headline(&counting).sentence().ends_with(" — lab: counted, not timed"));
}

#[test]
fn charts_are_there_where_there_is_a_ratio_and_only_there() {
    assert!(race_svg(&race()).unwrap().contains("shown worse after 4 rounds"));
    let chart = together_svg(&together(), Surface::Standalone).unwrap();
    assert!(chart.contains("2 guests at once") && chart.contains("lab: emulated time") && !chart.contains("var("));
    assert!(race_svg(&alone()).is_none() && together_svg(&race(), Surface::Page).is_none());
    let mut only_read_back = race();
    for arm in &mut only_read_back.race.as_mut().unwrap().arms {
        (arm.rounds, arm.median, arm.to_reference) = (0, None, None);
    }
    assert!(race_svg(&only_read_back).is_none());
}
