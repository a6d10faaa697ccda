//! The view model: everything a report says, as plain data. Others fill it; renderers only show it.
//!
//! A figure that could not be had is `None` and is shown as "unknown", never as zero. Counts and sizes carry their unit
//! in the type or in the field's description.

mod by_nodes;
mod comparison;
mod cost;
mod experiment;
pub(crate) mod fleet;
mod guest;
mod host_map;
mod memory;
mod papers;
mod plan;
mod provenance;
mod race;
mod slice;
mod tiles;
mod together;

pub(crate) use by_nodes::mode;
pub use by_nodes::{ByNodesView, MODELLED, ModePoint, ModeSeries, NodesQuantity, OrderSaid};
pub use comparison::{
    ArmRole, ArmView, Bounds, ComparisonView, ExtraPus, IncompleteArm, Metric, NoiseFloorView, SampleSeries,
};
pub use cost::{CostFigure, CostLine, LiftLine};
pub use experiment::{EXPERIMENT_SCHEMA, ExperimentView, StepState, StepView, claims};
pub use guest::{DiskCard, GuestCard};
pub use host_map::{HostMap, MapDevice, MapMemory, MapNode, MapPu};
pub use memory::{MemoryRow, MemorySide, MemoryTable};
pub use papers::{Beside, PaperFigure};
pub use plan::{CheckCounts, CheckOutcome, CheckRow, DiffKind, DiffLine, PlanView, PoolRow, ReasonRow};
pub use provenance::{Fact, LongText, RollbackView, StageSeconds};
pub use race::{
    AdviceKind, AdviceView, CeilingRow, EffectRow, LeftOutRow, RaceArm, RaceReadBack, RaceView, Rate, RatioView,
};
pub use slice::{NodePages, SliceDevice, SliceRole, SliceThread, SliceView};
pub use tiles::{PartBusy, TilesHeld, TilesRow, TilesView};
pub use together::{CountRow, GuestShare, TenantView, TogetherView};

use nearmetal_host::Host;
use serde::{Deserialize, Serialize};

/// The schema this crate writes and reads.
pub const REPORT_SCHEMA: &str = "nearmetal.report/1";

/// The report of one job: a VM as people have it, placed, proven, compared with bare metal, rolled back; or of one
/// measurement alone, which has no plan and no host to show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// [`REPORT_SCHEMA`].
    pub schema: String,
    /// What the page is about, such as "web1 on quad".
    pub title: String,
    /// When the job ended, RFC 3339 with an offset.
    pub created: String,
    /// Version of nearmetal that did the job.
    pub nearmetal_version: String,
    /// Whether the figures come from silicon or from the lab's emulated clock.
    pub environment: Environment,
    /// True only for invented figures, as in tests and screenshots; the report then says so on top.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sample_data: bool,
    /// What was shortened, if this was the quick mode.
    pub quick: Option<QuickMode>,
    /// The host before any change; `None` for a measurement alone, whose document does not describe it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// The host while the planned guest ran; without it the picture "after" shows the pools as they were before.
    pub host_after: Option<Host>,
    /// The VM.
    pub guest: GuestCard,
    /// What the VM occupied as found.
    pub slice_before: SliceView,
    /// What it occupies after the change, as read back.
    pub slice_after: SliceView,
    /// Decisions and pool changes; `None` for a measurement alone: nothing was placed, read back or rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanView>,
    /// Difference of the domain XML, as found against planned.
    pub diff: Vec<DiffLine>,
    /// What was read back from the kernel, QEMU and libvirt after the change.
    pub verification: Vec<CheckRow>,
    /// What the guest itself sees.
    pub guest_view: Vec<CheckRow>,
    /// What was measured, by metric id.
    pub metrics: Vec<Metric>,
    /// The metric the headline speaks of, by id.
    pub headline_metric: Option<String>,
    /// The arms, in the order to show them.
    pub arms: Vec<ArmView>,
    /// Arms that lost samples, in the order of the arms; said before anything else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<IncompleteArm>,
    /// Ratios with intervals, in the order to show them.
    pub comparisons: Vec<ComparisonView>,
    /// The race of ways to a disk or a network, if this is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub race: Option<RaceView>,
    /// What several guests at once did, if there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<TogetherView>,
    /// One guest over more and more NUMA nodes in several modes, if that was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_nodes: Option<ByNodesView>,
    /// Tiles of guests that serve, one more until the machine is full, if that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles: Option<TilesView>,
    /// The guests of a measurement alone, and where each ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<TenantView>,
    /// Raw samples.
    pub samples: Vec<SampleSeries>,
    /// What two equal arms showed.
    pub noise_floors: Vec<NoiseFloorView>,
    /// Where the time goes: what each arm spent on each request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub costs: Vec<CostLine>,
    /// What would lift the guests, most exits first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifts: Vec<LiftLine>,
    /// Memory latency and bandwidth.
    pub memory: Option<MemoryTable>,
    /// Figures of papers, to stand beside ours.
    pub papers: Vec<PaperFigure>,
    /// Versions, kernels, settings.
    pub provenance: Vec<Fact>,
    /// Domain XML, QEMU command line, fio job.
    pub texts: Vec<LongText>,
    /// How long each stage took.
    pub stages: Vec<StageSeconds>,
    /// The way back, if it was taken.
    pub rolled_back: Option<RollbackView>,
    /// Commands that repeat this job, one per line.
    pub reproduce: Vec<String>,
    /// What a reader must know before trusting a figure, one sentence each.
    pub caveats: Vec<String>,
}

/// Where the figures come from. The two are never mixed in one report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Environment {
    /// The emulated server: its clock is emulated too.
    Lab {
        /// Name of the machine definition, such as `quad`.
        machine: String,
        /// What follows from that for the figures, one or two sentences.
        note: String,
    },
    /// Real hardware.
    Silicon,
}

/// The quick mode.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QuickMode {
    /// What was shortened, one phrase each: "guests stay up between pairs", "5 s samples".
    pub shortened: Vec<String>,
}

/// A text that is no report of this version.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Another schema, or none.
    #[error("the report's schema is `{found}`; this version reads {REPORT_SCHEMA}")]
    Schema {
        /// What the text says.
        found: String,
    },
    /// No JSON, or not of this shape.
    #[error("the report cannot be read")]
    Json(#[from] serde_json::Error),
}

impl JobReport {
    /// Reads a report; the schema is checked before the shape, so that a newer one is named as such.
    pub fn from_json(text: &str) -> Result<Self, ReportError> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        let found = value.get("schema").and_then(|schema| schema.as_str()).unwrap_or("missing");
        if found != REPORT_SCHEMA {
            return Err(ReportError::Schema { found: found.chars().take(80).collect() });
        }
        Ok(serde_json::from_value(value)?)
    }

    /// Whether the figures come from the lab.
    pub fn is_lab(&self) -> bool {
        matches!(self.environment, Environment::Lab { .. })
    }

    /// All that was read back: from the kernel, QEMU and libvirt, and what the guest itself sees.
    pub fn read_back(&self) -> impl Iterator<Item = &CheckRow> {
        self.verification.iter().chain(&self.guest_view)
    }

    /// How many read-backs had which outcome.
    pub fn checks(&self) -> CheckCounts {
        let mut counts = CheckCounts::default();
        for row in self.read_back() {
            match row.outcome {
                CheckOutcome::Ok => counts.ok += 1,
                CheckOutcome::Mismatch => counts.mismatch += 1,
                CheckOutcome::CannotTell => counts.cannot_tell += 1,
            }
        }
        counts
    }

    /// Whether everything planned was found: `None` if nothing was read back. A row that cannot tell is no proof.
    pub fn verified(&self) -> Option<bool> {
        let counts = self.checks();
        (counts.all() > 0).then_some(counts.ok == counts.all())
    }

    /// The metric with this id.
    pub fn metric(&self, id: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.id == id)
    }

    /// The arm with this id.
    pub fn arm(&self, id: &str) -> Option<&ArmView> {
        self.arms.iter().find(|arm| arm.id == id)
    }

    /// The first arm with this role.
    pub fn arm_of(&self, role: ArmRole) -> Option<&ArmView> {
        self.arms.iter().find(|arm| arm.role == role)
    }

    /// The comparison of two roles in one metric.
    pub fn comparison(&self, metric: &str, subject: ArmRole, reference: ArmRole) -> Option<&ComparisonView> {
        let (subject, reference) = (self.arm_of(subject)?, self.arm_of(reference)?);
        self.comparisons
            .iter()
            .find(|row| row.metric == metric && row.subject == subject.id && row.reference == reference.id)
    }

    /// The noise floor of one metric.
    pub fn noise_floor(&self, metric: &str) -> Option<&NoiseFloorView> {
        self.noise_floors.iter().find(|floor| floor.metric == metric)
    }
}
