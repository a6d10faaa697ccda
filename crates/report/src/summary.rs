//! `summary.json`: the few figures other programs read. Its schema is docs/reference/summary.schema.json.

use serde::{Deserialize, Serialize};

use crate::headline::headline;
use crate::text::{LAB_WORDS, UNKNOWN, finite};
use crate::view::{ArmRole, CheckCounts, Environment, IncompleteArm, JobReport};

/// The schema of the summary.
pub const SUMMARY_SCHEMA: &str = "nearmetal.summary/1";

/// The summary of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SUMMARY_SCHEMA`].
    pub schema: String,
    /// The report's title.
    pub title: String,
    /// When the job ended, RFC 3339.
    pub created: String,
    /// Version of nearmetal.
    pub nearmetal_version: String,
    /// Domain name.
    pub guest: String,
    /// Domain UUID.
    pub uuid: String,
    /// Whether the figures come from the lab.
    pub lab: bool,
    /// `lab: emulated time` or `silicon`.
    pub environment: String,
    /// The lab's machine; null on silicon.
    pub machine: Option<String>,
    /// True only for invented figures.
    pub sample_data: bool,
    /// Whether this was the quick mode.
    pub quick: bool,
    /// Whether everything planned was found; null if nothing was read back.
    pub verified: Option<bool>,
    /// How many read-backs had which outcome.
    pub checks: CheckCounts,
    /// Whether the former state was found again; null if it was not rolled back.
    pub rolled_back: Option<bool>,
    /// The report's first sentence.
    pub headline: String,
    /// Id of the metric it speaks of.
    pub headline_metric: Option<String>,
    /// One per arm that lost samples; empty if none did.
    #[serde(default)]
    pub incomplete: Vec<IncompleteArm>,
    /// One per comparison.
    pub arms: Vec<ArmFigure>,
    /// What two equal arms showed, by metric.
    pub noise_floors: Vec<NoiseFigure>,
    /// Seconds per stage, in order.
    pub stages: Vec<StageFigure>,
}

/// One arm against another in one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmFigure {
    /// The arm.
    pub arm: String,
    /// Its part in the job; null if the report does not list the arm.
    pub role: Option<ArmRole>,
    /// The arm it is compared with.
    pub reference: String,
    /// Metric id.
    pub metric: String,
    /// Unit of the values.
    pub unit: Option<String>,
    /// Whether more is better.
    pub higher_is_better: Option<bool>,
    /// Number of pairs.
    pub n: u32,
    /// Geometric mean of the arm's runs.
    pub value: Option<f64>,
    /// Geometric mean of the reference's runs.
    pub reference_value: Option<f64>,
    /// arm / reference.
    pub ratio: Option<f64>,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Confidence level of the interval.
    pub confidence: f64,
    /// Lower end of the bootstrap's interval.
    pub bootstrap_low: Option<f64>,
    /// Upper end.
    pub bootstrap_high: Option<f64>,
    /// Measured once: no interval.
    pub single_shot: bool,
    /// What may be claimed.
    pub verdict: String,
}

/// The noise floor of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoiseFigure {
    /// Metric id.
    pub metric: String,
    /// Number of A/A pairs.
    pub n: u32,
    /// Their ratio.
    pub ratio: Option<f64>,
    /// Lower bound of what is not told from noise.
    pub low: Option<f64>,
    /// Upper bound.
    pub high: Option<f64>,
}

/// Seconds of one stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageFigure {
    /// Stage.
    pub name: String,
    /// Wall-clock seconds; null if it was not timed.
    pub seconds: Option<f64>,
}

/// The summary of a report.
pub fn summary(view: &JobReport) -> Summary {
    let (environment, machine) = match &view.environment {
        Environment::Lab { machine, .. } => (LAB_WORDS, Some(machine.clone())),
        Environment::Silicon => ("silicon", None),
    };
    Summary {
        schema: SUMMARY_SCHEMA.to_owned(),
        title: view.title.clone(),
        created: view.created.clone(),
        nearmetal_version: view.nearmetal_version.clone(),
        guest: view.guest.name.clone(),
        uuid: view.guest.uuid.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        lab: view.is_lab(),
        environment: environment.to_owned(),
        machine,
        sample_data: view.sample_data,
        quick: view.quick.is_some(),
        verified: view.verified(),
        checks: view.checks(),
        rolled_back: view.rolled_back.as_ref().map(|rollback| rollback.ok),
        headline: headline(view).sentence(),
        headline_metric: view.headline_metric.clone(),
        incomplete: view.incomplete.clone(),
        arms: arms(view),
        noise_floors: noise_floors(view),
        stages: view
            .stages
            .iter()
            .map(|stage| StageFigure { name: stage.name.clone(), seconds: finite(Some(stage.seconds)) })
            .collect(),
    }
}

/// The summary as the text of `summary.json`.
pub fn summary_json(view: &JobReport) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(&summary(view)).map(|text| text + "\n")
}

fn arms(view: &JobReport) -> Vec<ArmFigure> {
    let figure = |row: &crate::view::ComparisonView| {
        let metric = view.metric(&row.metric);
        ArmFigure {
            arm: row.subject.clone(),
            role: view.arm(&row.subject).map(|arm| arm.role),
            reference: row.reference.clone(),
            metric: row.metric.clone(),
            unit: metric.map(|metric| metric.unit.clone()),
            higher_is_better: metric.map(|metric| metric.higher_is_better),
            n: row.n,
            value: finite(row.subject_value),
            reference_value: finite(row.reference_value),
            ratio: finite(row.ratio),
            low: finite(row.interval.map(|ends| ends.low)),
            high: finite(row.interval.map(|ends| ends.high)),
            confidence: row.confidence,
            bootstrap_low: finite(row.bootstrap.map(|ends| ends.low)),
            bootstrap_high: finite(row.bootstrap.map(|ends| ends.high)),
            single_shot: row.single_shot,
            verdict: row.verdict.clone(),
        }
    };
    view.comparisons.iter().map(figure).collect()
}

fn noise_floors(view: &JobReport) -> Vec<NoiseFigure> {
    let figure = |floor: &crate::view::NoiseFloorView| NoiseFigure {
        metric: floor.metric.clone(),
        n: floor.n,
        ratio: finite(floor.ratio),
        low: finite(floor.bounds.map(|ends| ends.low)),
        high: finite(floor.bounds.map(|ends| ends.high)),
    };
    view.noise_floors.iter().map(figure).collect()
}
