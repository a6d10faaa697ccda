//! The page: complete, self-contained, and deaf to what hostile text asks of it.

#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_report::view::{
    ArmRole, Bounds, CheckOutcome, ComparisonView, Environment, JobReport, Metric, SampleSeries,
};
use nearmetal_report::{headline, html_page};

const HOSTILE: &str =
    "</pre></style><script>alert('x')</script><img src=x onerror=\"alert(1)\">{{ page }}\u{1b}\u{202e}";

#[test]
fn the_page_holds_every_part_in_order() {
    let page = html_page(&sample::sample()).unwrap();
    let parts = [
        "SAMPLE DATA",
        "<h1>",
        "id=\"slice\"",
        "id=\"plan\"",
        "id=\"diff\"",
        "id=\"readback\"",
        "id=\"compared\"",
        "id=\"memory\"",
        "id=\"papers\"",
        "id=\"rollback\"",
        "id=\"provenance\"",
        "id=\"stages\"",
        "id=\"reproduce\"",
    ];
    let places: Vec<_> = parts.map(|part| page.find(part).unwrap_or_else(|| panic!("`{part}` is missing"))).to_vec();
    assert!(places.is_sorted(), "{places:?}");
    assert!(page.contains("more than 900,000 IOPS"), "the paper's figures stand beside ours");
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    let page = html_page(&sample::sample()).unwrap();
    for forbidden in ["<script", "<link", "<img", "<iframe", "@import", "url(http", "src=", "javascript:"] {
        assert!(!page.contains(forbidden), "`{forbidden}` in the page");
    }
    // The only addresses are the name of SVG and what the report itself quotes.
    let quoted = ["http://www.w3.org/2000/svg", "https://example.invalid/nearmetal"];
    let rest = quoted.iter().fold(page.replace("&#x2f;", "/"), |page, address| page.replace(address, ""));
    assert!(!rest.contains("http://") && !rest.contains("https://"));
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn every_figure_of_the_lab_is_labelled() {
    let page = html_page(&sample::sample()).unwrap();
    for section in ["compared", "memory", "papers"] {
        let start = page.find(&format!("id=\"{section}\"")).unwrap();
        let end = page[start..].find("</section>").unwrap();
        assert!(page[start..start + end].contains("lab: emulated time"), "{section}");
    }
    let mut silicon = sample::sample();
    silicon.environment = Environment::Silicon;
    silicon.papers.clear();
    let page = html_page(&silicon).unwrap();
    assert!(!page.contains("emulated time"));
    assert!(page.contains("silicon"));
}

/// Puts the hostile text into every text of a report but those that tag an enum or are parsed.
fn poison(view: &JobReport) -> JobReport {
    fn walk(value: &mut serde_json::Value, key: &str) {
        use serde_json::Value::{Array, Object, String};
        const PARSED: [&str; 16] = [
            "schema",
            "kind",
            "outcome",
            "role",
            "side",
            "cpus",
            "nodes",
            "pci",
            "address",
            "siblings",
            "functions",
            "arm",
            "metric",
            "subject",
            "reference",
            "id",
        ];
        match value {
            String(text) if !PARSED.contains(&key) => text.push_str(HOSTILE),
            Array(values) => values.iter_mut().for_each(|value| walk(value, key)),
            Object(fields) => fields.iter_mut().for_each(|(key, value)| walk(value, key)),
            _ => {}
        }
    }
    let mut value = serde_json::to_value(view).unwrap();
    walk(&mut value, "");
    let mut view: JobReport = serde_json::from_value(value).unwrap();
    view.plan.as_mut().unwrap().reasons[0].subject = HOSTILE.to_owned();
    view.verification[0].subject = HOSTILE.to_owned();
    view
}

#[test]
fn hostile_text_stays_text_everywhere() {
    let page = html_page(&poison(&sample::sample())).unwrap();
    for forbidden in ["<script", "<img", "</style><", "\u{1b}", "\u{202e}"] {
        assert!(!page.contains(forbidden), "`{forbidden:?}` came through");
    }
    assert!(page.matches("&lt;script&gt;").count() > 60, "the text itself is shown");
    assert!(page.contains("{{ page }}"), "the text is not a template");
    assert_eq!(page.matches("</style>").count(), 1);
}

#[test]
fn unknown_is_said_and_is_no_zero() {
    let page = html_page(&sample::sample()).unwrap();
    assert!(page.contains("<dt>microcode</dt><dd>unknown</dd>"));
    let memory = &page[page.find("id=\"memory\"").unwrap()..];
    assert_eq!(memory[..memory.find("</section>").unwrap()].matches(">unknown<").count(), 4);
}

#[test]
fn what_would_lift_a_guest_stands_with_its_exits_and_its_rule() {
    let mut view = sample::sample();
    let page = html_page(&view).unwrap();
    assert!(page.contains("planned msr 0.610 of 1.130</span> it ended interrupts"));
    assert!(page.contains("nearmetal doctor --explain kvm-apicv-avic-active"));
    // Where no exits were counted nothing is said.
    view.lifts.clear();
    assert!(!html_page(&view).unwrap().contains("What would lift"));
}

#[test]
fn an_empty_job_still_makes_a_page() {
    let mut view = sample::sample();
    view.verification.clear();
    view.guest_view.clear();
    view.comparisons.clear();
    view.samples.clear();
    view.noise_floors.clear();
    view.diff.clear();
    view.plan = Some(Default::default());
    view.headline_metric = None;
    view.memory = None;
    view.papers.clear();
    view.stages.clear();
    view.rolled_back = None;
    let page = html_page(&view).unwrap();
    assert!(page.contains("nothing was proven and nothing compared"));
    assert!(page.contains("nothing read back"));
}

#[test]
fn the_headline_says_no_more_than_was_shown() {
    let mut view = sample::sample();
    assert_eq!(
        headline(&view).sentence(),
        "web1 does 0.62× of bare metal on the same slice (95 % interval 0.58–0.66), up from 0.36× as found — lab: emulated time"
    );
    // Planned against as found: the interval holds 1, so neither up nor down.
    view.comparisons[3].interval = Some(nearmetal_report::view::Bounds { low: 0.9, high: 2.0 });
    assert!(headline(&view).sentence().contains("beside 0.36× as found"));
    view.comparisons[2].interval = None;
    view.comparisons[2].single_shot = true;
    assert!(headline(&view).sentence().contains("single shot, no interval"));
    view.verification[1].outcome = CheckOutcome::Mismatch;
    assert!(headline(&view).sentence().starts_with("web1 is not as planned: 1 of 11 read-backs differ"));
}

#[test]
fn counted_work_is_the_headline_and_time_stands_last() {
    let mut view = sample::sample();
    let time = view.headline_metric.clone().unwrap();
    let rows: Vec<_> = view.comparisons.iter().filter(|row| row.metric == time).cloned().collect();
    let iops = view.metrics.iter().find(|metric| metric.id == time).cloned().unwrap();
    let counted = [
        ("work", "per request", false, 2.74, (47e3, 16e3)),
        ("share", "%", true, 2.16, (99.96, 46.31)),
        ("far", "distance", false, 0.61, (10.0, 16.2)),
    ];
    for (id, unit, higher_is_better, ratio, values) in counted {
        view.metrics.push(Metric { id: id.into(), unit: unit.into(), higher_is_better, ..iops.clone() });
        view.comparisons.extend(rows.iter().cloned().map(|row| ComparisonView {
            metric: id.into(),
            ratio: Some(ratio),
            interval: Some(Bounds { low: ratio - 0.1, high: ratio + 0.1 }),
            subject_value: Some(values.0),
            reference_value: Some(values.1),
            ..row
        }));
    }
    view.headline_metric = Some("work".into());
    let said = headline(&view);
    let sentence = said.sentence();
    assert!(sentence.starts_with("web1 takes 2.74× the instructions of bare metal on the same slice"), "{sentence}");
    assert!(sentence.ends_with(" — lab: counted, not timed"), "{sentence}");
    assert_eq!(
        said.below.first().map(String::as_str),
        Some(
            "The mean distance of its accesses to memory is 10.0, 16.2 as found (a node's own is 10): 0.61× (0.51–0.71); 100.0 % of them stay on their node, 46.3 % as found"
        )
    );
    let gain = said.below.iter().find(|line| line.starts_with("Planned against as found:")).unwrap();
    assert!(gain.starts_with("Planned against as found: 2.74× (2.64–2.84), less is better"), "{gain}");
    let last = said.below.last().unwrap();
    assert!(last.starts_with("In the lab's emulated time: 0.62× (0.58–0.66) of bare metal"), "{last}");
    assert!(html_page(&view).unwrap().contains("emulated time: 0.62×"), "in grey, below");
}

#[test]
fn bare_metal_that_scatters_is_said_below_the_headline() {
    let mut view = sample::sample();
    let rough = |view: &JobReport| headline(view).below.iter().any(|line| line.contains("a ratio to it is rough"));
    let metric = view.headline_metric.clone().unwrap();
    let bare = view.arms.iter().find(|arm| arm.role == ArmRole::Bare).unwrap().id.clone();
    view.samples.retain(|series| series.metric != metric || series.arm != bare);
    let series = |values: &[f64]| SampleSeries {
        arm: bare.clone(),
        metric: metric.clone(),
        unit: "IOPS".into(),
        values: values.to_vec(),
    };
    view.samples.push(series(&[100.0, 190.0, 150.0]));
    assert!(!rough(&view), "within a factor of 2");
    *view.samples.last_mut().unwrap() = series(&[6200.0, 17_000.0, 9000.0]);
    let line = headline(&view).below.into_iter().find(|line| line.contains("a ratio to it is rough")).unwrap();
    assert!(line.starts_with("Bare metal's own samples run from 6,200 to 17,000 IOPS"), "{line}");
    assert!(line.ends_with("the one between planned and as found does not rest on it"), "{line}");
    view.comparisons.retain(|row| row.reference != "as-found");
    let alone = headline(&view).below.into_iter().find(|line| line.contains("a ratio to it is rough")).unwrap();
    assert!(alone.ends_with("measure again on a quiet machine, or with more pairs"), "{alone}");
}

#[test]
fn a_report_reads_back_as_it_was_written() {
    let view = sample::sample();
    let text = serde_json::to_string(&view).unwrap();
    assert_eq!(JobReport::from_json(&text).unwrap(), view);
    let newer = text.replacen("nearmetal.report/1", "nearmetal.report/2", 1);
    let error = JobReport::from_json(&newer).unwrap_err().to_string();
    assert!(error.contains("nearmetal.report/2") && error.contains("nearmetal.report/1"), "{error}");
    assert!(JobReport::from_json("{}").is_err());
    assert!(JobReport::from_json("[").is_err());
}
