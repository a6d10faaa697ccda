//! A published experiment run here: what the paper did, what this did, the steps, and what may be claimed of them.

use nearmetal_stats::ShownRatio;
use serde::{Deserialize, Serialize};

use super::{AdviceKind, ArmRole, Environment, JobReport, PaperFigure};
use crate::text::{LAB_WORDS, capital, count, lab_words, metric_words, shown};

/// The schema this crate writes and reads.
pub const EXPERIMENT_SCHEMA: &str = "nearmetal.experiment/1";

/// Claims of one step that a page or a text tells; the document has all of them.
pub(crate) const MOST_CLAIMS: usize = 6;

/// A published experiment, as it was run here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExperimentView {
    /// [`EXPERIMENT_SCHEMA`].
    pub schema: String,
    /// Its name on the command line: `numa-modes`.
    pub name: String,
    /// The question it answers.
    pub question: String,
    /// When it was begun, RFC 3339.
    pub created: String,
    /// nearmetal's version.
    pub nearmetal_version: String,
    /// Whether the figures come from silicon or from the lab's emulated clock; `None` before any step has a result.
    pub environment: Option<Environment>,
    /// The VMs.
    pub guests: Vec<String>,
    /// Whether samples were fewer and shorter than usual.
    pub quick: bool,
    /// What the paper did, one sentence or two.
    pub did: String,
    /// What this does.
    pub does: String,
    /// What differs, one sentence each.
    pub differs: Vec<String>,
    /// What may be concluded, and what not, one sentence each.
    pub conclude: Vec<String>,
    /// The command that runs it again, or goes on with it.
    pub command: String,
    /// The steps, in the order they run.
    pub steps: Vec<StepView>,
    /// The papers' figures, with ours beside.
    pub figures: Vec<PaperFigure>,
}

/// One measurement of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepView {
    /// Its id: names its files.
    pub id: String,
    /// For people.
    pub title: String,
    /// The command that measures the same alone.
    pub command: String,
    /// When it was begun, RFC 3339 in UTC; `None` if it was not.
    pub begun: Option<String>,
    /// How far it is.
    pub state: StepState,
    /// Seconds it took; `None` before its end.
    pub seconds: Option<f64>,
    /// The measurement's document, relative to the experiment's directory.
    pub document: Option<String>,
    /// Its own page, relative likewise.
    pub page: Option<String>,
    /// What may be claimed, one sentence each: [`claims`]. Empty if there is nothing to claim.
    pub claims: Vec<String>,
    /// The host it was measured on, by its name; `None` before it was begun.
    pub host: Option<String>,
    /// When the plan was made that was in force; `None` before it was begun.
    pub plan: Option<String>,
}

impl StepView {
    /// The first claims, and how many more there are.
    pub(crate) fn told(&self) -> (&[String], usize) {
        let told = self.claims.len().min(MOST_CLAIMS);
        (&self.claims[..told], self.claims.len() - told)
    }
}

/// How far a step is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum StepState {
    /// It waits for its turn, or was interrupted: the same command goes on with it.
    Waiting,
    /// It has its document.
    Done,
    /// It has its document, and arms lost samples.
    Incomplete {
        /// Which, and why.
        why: String,
    },
    /// It gave nothing.
    Failed {
        /// Why.
        why: String,
    },
}

impl StepState {
    /// In one word, for tables.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Waiting => "not run",
            Self::Done => "done",
            Self::Incomplete { .. } => "incomplete",
            Self::Failed { .. } => "failed",
        }
    }

    /// Why it is not simply done.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Incomplete { why } | Self::Failed { why } => Some(why),
            Self::Waiting | Self::Done => None,
        }
    }
}

impl ExperimentView {
    /// Whether the figures come from the lab.
    pub fn is_lab(&self) -> bool {
        matches!(self.environment, Some(Environment::Lab { .. }))
    }

    /// Every step's claims together, or the sentence that there is none.
    pub fn verdict(&self) -> String {
        let claims = self.steps.iter().map(|step| step.claims.len()).sum::<usize>();
        let steps = self.steps.iter().filter(|step| matches!(step.state, StepState::Done)).count();
        let of = format!("{steps} of {}", count(self.steps.len(), "step"));
        match claims {
            0 if steps == 0 => format!("{of} done: there is nothing to claim yet"),
            0 => format!("{of} done, and no claim: nothing was shown beyond the noise"),
            claims => format!("{of} done, {} with an interval", count(claims, "claim")),
        }
    }
}

/// What may be claimed of a measurement: differences whose interval leaves 1 out and, where equal arms were set against each
/// other, lies outside what those differ by. Of several guests and of modes over nodes the most of them; of a race its advice.
pub fn claims(report: &JobReport) -> Vec<String> {
    let mut claims = Vec::new();
    claims.extend(advice(report));
    claims.extend(modes(report));
    claims.extend(at_once(report));
    claims.extend(pairs(report));
    claims
}

/// The words of a lab's figure, in brackets behind it.
fn words(lab: Option<&str>) -> String {
    lab.map(|words| format!(" ({words})")).unwrap_or_default()
}

fn advice(report: &JobReport) -> Option<String> {
    let race = report.race.as_ref().filter(|race| race.was_raced())?;
    let advice = race.advice.as_ref()?;
    let ratio = advice.to_reference.as_ref()?;
    let arm = advice.arm.as_deref()?;
    let lab = words(report.is_lab().then_some(LAB_WORDS));
    (advice.kind == AdviceKind::Use).then(|| {
        let quantity = race.quantity_words();
        format!("{arm} does {ratio} of {}, {quantity}, in {} fresh pairs{lab}", race.reference_name, ratio.n)
    })
}

fn modes(report: &JobReport) -> Vec<String> {
    let Some(view) = &report.by_nodes else { return Vec::new() };
    let Some(most) = view.most_nodes() else { return Vec::new() };
    let at = count(most as usize, "node");
    let mut claims = Vec::new();
    for quantity in view.shown() {
        for (arm, point) in quantity.best_first(&report.arms, most) {
            if let Some(ratio) = point.to_bare.as_ref().filter(|_| point.beyond_noise) {
                let lab = words(lab_words(quantity, report.is_lab()));
                let (label, arm) = (&quantity.label, &arm.name);
                claims.push(format!("{label}: {arm} {ratio} of native over {at}, n = {}{lab}", ratio.n));
            }
        }
    }
    claims
}

fn at_once(report: &JobReport) -> Vec<String> {
    let rows = report.together.iter().flat_map(|together| together.counts.iter().rev());
    let told = rows.filter_map(|row| Some((row.count, row.ratio.as_ref().filter(|_| row.beyond_noise)?)));
    told.map(|(guests, ratio)| {
        let (do_it, slices) = if guests == 1 { ("does", "its bare slice") } else { ("do", "their bare slices") };
        let lab = words(report.is_lab().then_some(LAB_WORDS));
        format!("{} {do_it} {ratio} of {slices}, n = {}{lab}", count(guests as usize, "guest"), ratio.n)
    })
    .collect()
}

/// The headline's metric first; the planned arm against bare metal first of each.
fn pairs(report: &JobReport) -> Vec<String> {
    // What several guests, modes or ways do is told from their own tables.
    if report.together.is_some() || report.by_nodes.is_some() || report.race.is_some() {
        return Vec::new();
    }
    let role = |id: &str| report.arm(id).map(|arm| arm.role);
    let mut rows: Vec<_> = report
        .comparisons
        .iter()
        .filter(|row| !row.single_shot)
        // The words of a verdict: see the job's comparisons. Anything else is a claim.
        .filter(|row| !row.verdict.starts_with("no difference") && !row.verdict.starts_with("not resolved"))
        .filter(|row| row.interval.is_some_and(|ends| ends.low > 1.0 || ends.high < 1.0))
        .collect();
    rows.sort_by_key(|row| {
        let first = report.headline_metric.as_deref() != Some(row.metric.as_str());
        (first, role(&row.subject) != Some(ArmRole::Planned), role(&row.reference) != Some(ArmRole::Bare))
    });
    rows.iter()
        .map(|row| {
            let label = report.metric(&row.metric).map_or(row.metric.as_str(), |metric| metric.label.as_str());
            let ratio: ShownRatio = shown(row.ratio, row.interval);
            let lab = words(metric_words(&row.metric, report.is_lab()));
            format!("{}: {ratio}, n = {}: {}{lab}", capital(label), row.n, row.verdict)
        })
        .collect()
}
