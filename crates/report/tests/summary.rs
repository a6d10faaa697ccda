//! `summary.json` holds what its published schema promises.

#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_report::view::IncompleteArm;
use nearmetal_report::{Style, html_page, summary_json, summary_violations, terminal};
use serde_json::Value;

fn check(view: &nearmetal_report::view::JobReport) -> Value {
    let text = summary_json(view).unwrap();
    let found = summary_violations(&text);
    assert!(found.is_empty(), "{found:#?}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_summary_keeps_its_schema() {
    let summary = check(&sample::sample());
    assert_eq!(summary["verified"], true);
    assert_eq!(summary["rolled_back"], true);
    assert_eq!(summary["lab"], true);
    assert_eq!(summary["environment"], "lab: emulated time");
    let planned = &summary["arms"][2];
    assert_eq!(
        (&planned["arm"], &planned["n"], &planned["low"], &planned["high"]),
        (&"planned".into(), &6.into(), &0.58.into(), &0.66.into())
    );
}

#[test]
fn what_is_not_known_is_null() {
    let mut view = sample::sample();
    view.verification.clear();
    view.guest_view.clear();
    view.rolled_back = None;
    view.comparisons[0].ratio = Some(f64::NAN);
    view.comparisons[0].interval = None;
    view.comparisons[0].metric = "a metric nobody listed".to_owned();
    view.stages[0].seconds = f64::INFINITY;
    let summary = check(&view);
    for value in [&summary["verified"], &summary["rolled_back"], &summary["stages"][0]["seconds"]] {
        assert!(value.is_null());
    }
    for field in ["ratio", "low", "high", "unit", "higher_is_better"] {
        assert!(summary["arms"][0][field].is_null(), "{field}");
    }
}

#[test]
fn what_only_the_guest_sees_otherwise_is_a_difference_everywhere() {
    let mut view = sample::sample();
    let before = check(&view)["checks"]["ok"].as_u64().unwrap();
    view.guest_view[0].outcome = nearmetal_report::view::CheckOutcome::Mismatch;
    let summary = check(&view);
    assert_eq!((&summary["verified"], &summary["checks"]["mismatch"]), (&false.into(), &1.into()));
    let words = format!("1 of {before}");
    assert!(
        summary["headline"]
            .as_str()
            .unwrap()
            .starts_with(&format!("web1 is not as planned: {words} read-backs differ"))
    );
    let page = nearmetal_report::html_page(&view).unwrap();
    assert!(page.contains(&format!("✗ {words} differ")), "{words}");
}

#[test]
fn a_read_back_that_cannot_tell_is_no_proof() {
    let mut view = sample::sample();
    view.verification[0].outcome = nearmetal_report::view::CheckOutcome::CannotTell;
    assert_eq!(check(&view)["verified"], false);
}

#[test]
fn an_arm_that_lost_samples_is_named_before_the_headline() {
    let mut view = sample::sample();
    let lost = |failed| IncompleteArm {
        arm: "as-found".to_owned(),
        failed,
        samples: 14,
        why: "the guest's agent did not answer within 66 s".to_owned(),
    };
    view.incomplete = vec![lost(9)];
    assert_eq!(check(&view)["incomplete"][0]["failed"], 9);
    let (page, text) = (html_page(&view).unwrap(), terminal(&view, &Style { width: 100, colour: false, ascii: false }));
    let place = |words: &str| page.find(words).unwrap_or_else(|| panic!("`{words}` is missing"));
    assert!(place("class=\"warning\"") < place("<h1>") && page.contains("9 of its 14 samples failed"), "{page}");
    let line = |words: &str| text.lines().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("is incomplete: 9 of its 14 samples failed") < line("of bare metal on the same slice"), "{text}");
    view.incomplete = vec![lost(14)];
    assert!(html_page(&view).unwrap().contains("all of its 14 samples failed, so it has no figures"));
    view.incomplete.clear();
    assert!(!html_page(&view).unwrap().contains("class=\"warning\""));
}
