//! The page of a published experiment: the question, the papers' figures with ours, the claims, and each step's chart.

use minijinja::Value;
use serde_json::json;

use super::{PageError, arms_charts, both, cleaned, context, environment, safe, style};
use crate::svg::{Surface, by_nodes_chart, race_chart, tiles_chart, together_chart};
use crate::text::{LAB_WORDS, capital, clean, duration};
use crate::view::{ExperimentView, JobReport, StepState, StepView};

/// The experiment as one HTML page. `reports` are those of the steps that have a document, by step id; their charts are
/// drawn into the page, and everything else of them stands in the page that each step links to.
pub fn experiment_page(view: &ExperimentView, reports: &[(&str, &JobReport)]) -> Result<String, PageError> {
    let mut environment = environment();
    environment.add_template("experiment", include_str!("experiment.html"))?;
    environment.add_template("macros", include_str!("macros.html"))?;
    environment.add_template("papers", include_str!("papers.html"))?;
    let report = |id: &str| reports.iter().find(|(step, _)| *step == id).map(|(_, report)| *report);
    let charts: Vec<Value> = view.steps.iter().map(|step| chart(report(&step.id))).collect();
    let page = cleaned(page(view));
    let style = safe(style() + include_str!("measurement.css"));
    let context = minijinja::context! { page => Value::from_serialize(&page), charts, style };
    Ok(environment.get_template("experiment")?.render(context)?)
}

fn page(view: &ExperimentView) -> serde_json::Value {
    let lab = view.is_lab().then(|| json!({ "words": LAB_WORDS }));
    let steps: Vec<_> = view.steps.iter().map(step).collect();
    json!({
        "name": view.name, "question": view.question, "created": view.created, "version": view.nearmetal_version,
        "lab": lab, "guests": view.guests.join(", "), "quick": view.quick, "did": view.did, "does": view.does,
        "differs": view.differs, "conclude": view.conclude, "command": view.command, "verdict": capital(&view.verdict()),
        "steps": steps, "papers": context::papers(&view.figures),
    })
}

fn step(step: &StepView) -> serde_json::Value {
    let tone = match step.state {
        StepState::Done => "good",
        StepState::Failed { .. } => "bad",
        StepState::Waiting | StepState::Incomplete { .. } => "unsure",
    };
    let (told, more) = step.told();
    let claims: Vec<String> = told.iter().map(|claim| capital(claim)).collect();
    // Only a file beside this page: the document may be anybody's.
    let page = step.page.as_deref().map(std::path::Path::new).and_then(|page| page.file_name()?.to_str());
    let nothing = step.state == StepState::Done && claims.is_empty();
    json!({
        "title": step.title, "command": step.command, "word": step.state.word(), "why": step.state.why(), "tone": tone,
        "seconds": step.seconds.map(duration), "page": page, "claims": claims, "more": (more > 0).then_some(more), "nothing": nothing,
    })
}

/// The one chart that tells most of a measurement.
fn chart(report: Option<&JobReport>) -> Value {
    let Some(report) = report else { return Value::from(()) };
    let whole = both(|width| by_nodes_chart(report, Surface::Page, width))
        .or_else(|| both(|width| race_chart(report, width)))
        .or_else(|| both(|width| tiles_chart(report, Surface::Page, width)))
        .or_else(|| both(|width| together_chart(report, Surface::Page, width)));
    match whole {
        Some(chart) => minijinja::context! { caption => clean(&report.title), chart },
        None => match arms_charts(report).into_iter().next() {
            Some(first) => {
                let caption = first.get_attr("label").unwrap_or_default();
                minijinja::context! { caption, chart => first.get_attr("chart").unwrap_or_default() }
            }
            None => Value::from(()),
        },
    }
}
