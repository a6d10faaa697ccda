//! A published experiment: our figures beside the paper's, what is claimed, the page, the text, the document.
#![allow(clippy::unwrap_used)] // helpers outside #[test] functions: a panic is the failure

mod sample;

use nearmetal_cli_reference::{Fields, Tables};
use nearmetal_report::papers::{experiment, of_experiment};
use nearmetal_report::view::{
    Beside, Bounds, EXPERIMENT_SCHEMA, Environment, ExperimentView, JobReport, PaperFigure, StepState, StepView, claims,
};
use nearmetal_report::{Style, experiment_page, experiment_text};
use serde_json::Value;

fn step(id: &str, state: StepState, report: Option<&JobReport>) -> StepView {
    StepView {
        id: id.into(),
        title: format!("step {id}"),
        command: format!("nearmetal bench {id} web1"),
        begun: Some("2026-01-01T00:00:00Z".into()),
        state,
        seconds: report.map(|_| 61.0),
        document: report.map(|_| format!("{id}.json")),
        page: report.map(|_| format!("{id}.html")),
        claims: report.map(claims).unwrap_or_default(),
        host: Some("host1".into()),
        plan: Some("2026-01-01T00:00:00Z".into()),
    }
}

/// `numa-modes` with its first step done and its second failed.
fn view(report: &JobReport) -> ExperimentView {
    let words = experiment("numa-modes").unwrap();
    let steps = [("modes", report)];
    ExperimentView {
        schema: EXPERIMENT_SCHEMA.into(),
        name: words.name,
        question: words.question,
        created: "2026-01-01T00:00:00Z".into(),
        nearmetal_version: "0".into(),
        environment: Some(report.environment.clone()),
        guests: vec!["web1".into()],
        quick: true,
        did: words.did,
        does: words.does,
        differs: words.differs,
        conclude: words.conclude,
        command: "nearmetal experiment run numa-modes web1 -o out".into(),
        steps: vec![
            step("modes", StepState::Done, Some(report)),
            step("memory-and-files", StepState::Failed { why: "no room on <b>/dev/x</b>".into() }, None),
        ],
        figures: of_experiment("numa-modes", &steps),
    }
}

fn ours<'a>(figures: &'a [PaperFigure], what: &str) -> Option<&'a Beside> {
    figures.iter().find(|figure| figure.what.starts_with(what)).unwrap().ours.as_ref()
}

#[test]
fn modes_stand_beside_the_papers_at_the_same_number_of_nodes() {
    let report = sample::nodes::nodes(true);
    let figures = of_experiment("numa-modes", &[("modes", &report)]);
    let one = ours(&figures, "one VM with guest NUMA nodes").unwrap();
    assert!(one.value.starts_with("0.86× (0.83–0.89), n = "), "{one:?}");
    assert!(one.note.contains("1 node;") && one.note.ends_with("lab: emulated time"), "{one:?}");
    assert!(ours(&figures, "the same over 4 nodes").unwrap().value.starts_with("0.66×"));
    let most = ours(&figures, "one VM on each node").unwrap();
    assert!(most.note.contains("8 nodes; 99.7 % of its accesses stay on their node"), "{most:?}");
    assert_eq!(ours(&figures, "memory latency"), None, "that step was not run");
}

#[test]
fn memory_is_compared_where_both_sides_have_the_same_pages() {
    let report = sample::sample();
    let figures = of_experiment("numa-modes", &[("memory-and-files", &report)]);
    let latency = ours(&figures, "memory latency").unwrap();
    let rows = &report.memory.as_ref().unwrap().rows;
    let bare = rows.iter().find(|row| row.backing.is_none() && row.median_ns.is_some()).unwrap();
    assert!(latency.note.contains(&format!("{} pages on both sides", bare.page)), "{latency:?}");
    assert!(latency.note.contains("single shot"), "{latency:?}");
    assert_eq!(ours(&figures, "one VM on each node"), None);
}

#[test]
fn a_measurement_without_a_difference_claims_nothing() {
    let mut report = sample::nodes::nodes(true);
    assert!(claims(&report).iter().any(|claim| claim.contains("of native over 8 nodes")), "{:?}", claims(&report));
    for series in report.by_nodes.iter_mut().flat_map(|view| &mut view.quantities).flat_map(|one| &mut one.series) {
        series.points.iter_mut().for_each(|point| point.beyond_noise = false);
    }
    assert_eq!(claims(&report), Vec::<String>::new());
    let mut view = view(&report);
    view.steps.truncate(1);
    assert!(view.verdict().contains("no claim"), "{}", view.verdict());
    assert!(experiment_page(&view, &[("modes", &report)]).unwrap().contains("No claim: nothing"));
}

#[test]
fn a_pairs_verdict_of_noise_is_no_claim() {
    let report = sample::sample();
    for claim in claims(&report) {
        assert!(!claim.contains("no difference shown") && !claim.contains("not resolved"), "{claim}");
    }
    let told = claims(&report);
    assert!(!told.is_empty());
    // The sample is of a lab, whose time is emulated and whose counts are not.
    for claim in told {
        let counted = claim.to_lowercase().starts_with("instructions");
        let words = if counted { "(lab: counted, not timed)" } else { "(lab: emulated time)" };
        assert!(claim.ends_with(words), "{claim}");
    }
}

#[test]
fn a_difference_within_the_noise_is_no_claim() {
    let mut report = sample::sample();
    report.comparisons.retain(|row| row.interval.is_some());
    for row in &mut report.comparisons {
        row.interval = Some(Bounds { low: 0.5, high: 0.6 });
        row.verdict = "no difference shown: the interval lies within the noise floor".into();
    }
    assert_eq!(claims(&report), Vec::<String>::new());

    let mut nodes = sample::nodes::nodes(true);
    assert!(!claims(&nodes).is_empty());
    for quantity in nodes.by_nodes.iter_mut().flat_map(|view| &mut view.quantities) {
        quantity.series.iter_mut().flat_map(|series| &mut series.points).for_each(|point| point.beyond_noise = false);
    }
    assert_eq!(claims(&nodes), Vec::<String>::new());
}

#[test]
fn a_page_of_anybodys_document_links_only_beside_itself() {
    let report = sample::nodes::nodes(true);
    let mut view = view(&report);
    view.steps[0].page = Some("https://example.org/../../x.html".into());
    let page = experiment_page(&view, &[]).unwrap();
    assert!(page.contains("href=\"x.html\"") && !page.contains("example.org"), "{page}");
}

#[test]
fn the_page_says_what_failed_and_escapes_it() {
    let report = sample::nodes::nodes(true);
    let page = experiment_page(&view(&report), &[("modes", &report)]).unwrap();
    assert!(page.contains("no room on &lt;b&gt;") && !page.contains("<b>/dev/x"), "the reason is escaped");
    assert!(page.contains("href=\"modes.html\"") && page.contains("<svg"), "the step's page and chart");
    assert!(page.contains("lab: emulated time") && page.contains("Sarkar"));
    assert!(page.trim_end().ends_with("</html>") && !page.contains("<script"));
}

#[test]
fn the_text_fits_its_width() {
    let report = sample::nodes::nodes(true);
    let text = experiment_text(&view(&report), &Style { width: 80, colour: false, ascii: false });
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("failed: no room on") && text.contains("ours not measured"), "{text}");
    assert!(text.contains("theirs 0.64×"), "a factor stands close to its number: {text}");
}

#[test]
fn the_reference_names_exactly_the_documents_fields() {
    const PAGE: Tables<'_> = Tables(include_str!("../../../docs/reference/experiment.md"));
    let report = sample::nodes::nodes(true);
    let mut view = view(&report);
    view.steps.push(step("x", StepState::Waiting, None));
    view.steps.push(step("y", StepState::Incomplete { why: "lost".into() }, None));
    view.environment = Some(Environment::Silicon);
    let document: Value = serde_json::to_value(&view).unwrap();
    let fields = Fields::of(&document);
    PAGE.have(&fields.clone().without(&["environment", "figures", "steps[].state"]), "## Fields");
    PAGE.have(&fields.below(&["steps[].state"]), "## State");
    PAGE.have(&fields.below(&["figures[]"]), "## Figure");
    PAGE.explain(&document, "steps[].state.state", 4, "## State");
    assert_eq!(serde_json::from_value::<ExperimentView>(document).unwrap(), view);
}
