//! Arms, ratios, samples and noise floors.

use nearmetal_units::{Bytes, CpuSet};
use serde::{Deserialize, Serialize};

use super::SliceRole;

/// A quantity that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Names it in this report and in `summary.json`: `fio-randrw-4k-iops`.
    pub id: String,
    /// For people: "4 KiB random 50/50 read+write".
    pub label: String,
    /// Unit of every value: `IOPS`, `MB/s` (10^6 bytes), `µs`, `ns`.
    pub unit: String,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// Request size, for the chart over sizes and for the papers' figures.
    pub request_size: Option<Bytes>,
}

impl Metric {
    /// What goes behind a ratio that would be read the other way round: `, less is better`, or nothing.
    pub fn less_is_better(&self) -> &'static str {
        if self.higher_is_better { "" } else { ", less is better" }
    }
}

/// One configuration that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmView {
    /// Names it in this report: `planned`.
    pub id: String,
    /// For people: "as planned".
    pub name: String,
    /// One sentence.
    pub description: String,
    /// Its part in the job: decides colour and headline.
    pub role: ArmRole,
    /// The settings that tell it from the others, one per line.
    pub configuration: Vec<String>,
    /// PUs that virtualization costs on top of the slice both sides own.
    pub extra_pus: Vec<ExtraPus>,
}

/// An arm of which not every sample was taken: its figures rest on fewer than the others'.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncompleteArm {
    /// Arm id.
    pub arm: String,
    /// Samples that failed.
    pub failed: u32,
    /// Samples that were tried.
    pub samples: u32,
    /// Why the first of them failed.
    pub why: String,
}

/// An arm's part in the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArmRole {
    /// The same slice without a guest.
    Bare,
    /// The VM as people have it.
    AsFound,
    /// The VM as nearmetal placed it.
    Planned,
    /// Any other, such as what virt-install writes.
    Other,
}

/// PUs used beyond the slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtraPus {
    /// What runs there.
    pub role: SliceRole,
    /// The PUs.
    pub cpus: CpuSet,
}

/// The ratio subject/reference of one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComparisonView {
    /// Metric id.
    pub metric: String,
    /// Arm id.
    pub subject: String,
    /// Arm id.
    pub reference: String,
    /// Number of pairs.
    pub n: u32,
    /// Geometric mean of the subject's runs, in the metric's unit; divided by the reference's it gives `ratio`.
    pub subject_value: Option<f64>,
    /// Geometric mean of the reference's runs, in the metric's unit.
    pub reference_value: Option<f64>,
    /// The ratio; `None` if no pair gave one.
    pub ratio: Option<f64>,
    /// The interval; `None` for a single shot.
    pub interval: Option<Bounds>,
    /// Confidence level of both intervals, such as 0.95.
    pub confidence: f64,
    /// How the interval was made: "Student's t on log-ratios".
    pub method: String,
    /// The bootstrap's interval, beside it.
    pub bootstrap: Option<Bounds>,
    /// Ratio of each pair, in the order measured.
    pub pair_ratios: Vec<f64>,
    /// What may be claimed, one sentence.
    pub verdict: String,
    /// Measured once: no interval, no claim.
    pub single_shot: bool,
}

/// Two ends of an interval on a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Raw values of one arm in one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleSeries {
    /// Arm id.
    pub arm: String,
    /// Metric id.
    pub metric: String,
    /// Unit of the values; the metric's.
    pub unit: String,
    /// Values in the order measured.
    pub values: Vec<f64>,
}

/// What two equal arms showed (A/A).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoiseFloorView {
    /// Metric id.
    pub metric: String,
    /// Number of A/A pairs.
    pub n: u32,
    /// Their ratio.
    pub ratio: Option<f64>,
    /// Ratios inside these bounds are not told from noise.
    pub bounds: Option<Bounds>,
}
