//! What an experiment leaves: one document for every kind of it. Schema `nearmetal.results/2`.
//!
//! Every run is kept with its raw values, whatever came of it, and enough to judge them later. What may be said of them is
//! worked out afterwards ([`crate::compare`]). Documents of earlier versions are read by [`crate::older`].

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_load::{Metric, Window, Workload};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arm::ArmName;
use crate::document;
use crate::error::ResultsError;
use crate::older;
use crate::tiles::Filling;
use crate::tune::Tuning;

/// Value of [`Results::schema`].
pub const SCHEMA: &str = "nearmetal.results/2";

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Always [`SCHEMA`] for this version.
    pub schema: String,
    /// Which experiment: `slice`, `decisions`, `pages`, `modes`, `inside`, `drive`, `together`, `tune`, `tiles`.
    pub experiment: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// nearmetal's version.
    pub version: String,
    /// On what the figures were taken.
    pub environment: Environment,
    /// Quick mode: guests stay up between samples, and only one block size is paired.
    pub quick: bool,
    /// Seed of order and bootstrap.
    pub seed: u64,
    /// The guests, in the order in which they join: two at once are the first two.
    pub tenants: Vec<Tenant>,
    /// The least overlap of a run of several tenants that counts, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_overlap: Option<f64>,
    /// Arms, bare metal first.
    pub arms: Vec<Arm>,
    /// Runs in the order they ran.
    pub runs: Vec<Run>,
    /// What a reader must know to judge the figures.
    pub caveats: Vec<String>,
    /// Versions, kernel, command lines: name to value.
    pub provenance: BTreeMap<String, String>,
    /// What only a tune leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune: Option<Box<Tuning>>,
    /// What only tiles leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles: Option<Box<Filling>>,
}

/// A guest with its slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Domain.
    pub guest: String,
    /// What it owns, and bare metal is confined to.
    pub slice: Slice,
    /// Affinity of its clone's threads as read from /proc, where each tenant has a clone of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<String>,
    /// What it runs, or what is asked of it, where that is not what the runs say: a tile's guests serve different things.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Workload>,
}

impl Results {
    /// Reads a document of this version or an earlier one.
    ///
    /// # Errors
    /// Another schema, or not of its form.
    pub fn parse(text: &str) -> Result<Self, ResultsError> {
        const WHAT: &str = "the results of an experiment";
        let value: Value =
            serde_json::from_str(text).map_err(|error| document::unreadable(WHAT, error.to_string(), text))?;
        document::parse(&older::upgraded(value).to_string(), WHAT, SCHEMA, |results: &Self| &results.schema)
    }

    /// The first guest: the only one, where several do not run at once.
    pub fn guest(&self) -> &str {
        self.tenants.first().map_or("", |tenant| tenant.guest.as_str())
    }

    /// Its slice.
    pub fn slice(&self) -> Option<&Slice> {
        self.tenants.first().map(|tenant| &tenant.slice)
    }

    /// The arm with this id.
    pub fn arm(&self, id: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name.id == id)
    }

    /// What a person calls the arm with this id.
    pub fn title<'a>(&'a self, id: &'a str) -> &'a str {
        self.arm(id).map_or(id, |arm| arm.name.title.as_str())
    }
}

/// Silicon, or a lab whose clock is emulated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Environment {
    /// A machine of silicon.
    Silicon,
    /// A lab: emulated time, never to be mixed with silicon's figures.
    Lab {
        /// Machine definition.
        machine: String,
    },
}

/// The PUs, nodes, page size and device both sides are given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The vCPUs' PUs: what bare metal is confined to.
    pub cpus: CpuSet,
    /// Nodes.
    pub nodes: NodeSet,
    /// Page size behind the guest's memory.
    pub page_size: Option<PageSize>,
    /// Scratch device.
    pub device: String,
    /// Size of each arm's region of it.
    pub region: Bytes,
    /// PUs the emulator thread and iothreads use beside the slice: what virtualization costs on top.
    pub cpus_on_top: CpuSet,
}

/// One arm as it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Its name; the id names it in runs.
    #[serde(flatten)]
    pub name: ArmName,
    /// One sentence.
    pub description: String,
    /// Region of the scratch device, function or port it works on.
    pub region: String,
    /// Domain XML as libvirt ran it; `None` for bare metal.
    pub xml: Option<String>,
    /// QEMU's command line from /proc; `None` for bare metal.
    pub command_line: Option<String>,
    /// Affinity of its threads as read from /proc, one line per thread; for bare metal the binding the probe verified.
    pub placement: Vec<String>,
}

/// Why a run was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// One side of a pair: all arms of a round are paired with each other.
    Pair,
    /// One half of an A/A pair: the same arm twice, for the noise floor.
    SameArm,
    /// Once, without a pair: shown, never claimed.
    SingleShot,
    /// A run of a race: the arms of a round are paired with each other, and the worst leave.
    Race,
    /// Once more, with VM exits counted by the processor's reason: only its costs are kept.
    ExitReasons,
    /// One side of a pair with its accesses to memory counted, which slows it: only how far they went is kept.
    Accesses,
    /// Without a guest and without a slice: the most that this machine and the other end do.
    Ceiling,
    /// One of several samples of an arm with so many tiles, of which more are added until it is full.
    Fill,
}

/// One run of one workload in one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Round: runs of one round belong together.
    pub round: u32,
    /// Position inside the round.
    pub position: u32,
    /// Why.
    pub purpose: Purpose,
    /// Id of the arm.
    pub arm: String,
    /// How many tenants ran at once: the first ones.
    #[serde(default = "one")]
    pub count: usize,
    /// Workload.
    pub workload: Workload,
    /// Seed of the workload: one per round, the same for all its arms.
    pub seed: u64,
    /// RFC 3339, UTC.
    pub started: String,
    /// Wall seconds of the whole run, resume and flush included.
    pub seconds: f64,
    /// What came of it.
    pub outcome: Outcome,
    /// What each of several tenants did, and how far they ran side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Together>,
}

fn one() -> usize {
    1
}

/// Several tenants, begun at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Together {
    /// One for each tenant.
    pub parts: Vec<Part>,
    /// The part of the longest job during which all ran, from 0 to 1.
    pub overlap: f64,
    /// How much the clocks of the tenants may be apart beyond what was taken into account, ms.
    pub clocks_within: f64,
}

/// One tenant's part of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Domain.
    pub guest: String,
    /// Its rate, in the unit of the load.
    pub rate: f64,
    /// When it measured, on the host's clock.
    pub window: Window,
    /// All that its own load said, the rate included; empty in documents of versions that kept the rate alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
}

/// A run has values or a reason, never a zero that stands for a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It ran.
    Measured {
        /// Values; of several tenants their sum.
        metrics: Vec<Metric>,
        /// What the workload said of itself (page size that backed it, …).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
    },
    /// It did not, or its tenants did not run side by side.
    Failed {
        /// Why.
        why: String,
    },
}

impl Outcome {
    /// Why it does not count; `None` if it does.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Measured { .. } => None,
            Self::Failed { why } => Some(why),
        }
    }
}

impl Run {
    /// The step that it is a try of: its purpose, round, position and arm. Designs that are carried out one after the other each
    /// count their rounds from 0.
    pub fn step(&self) -> (Purpose, u32, u32, &str) {
        (self.purpose, self.round, self.position, self.arm.as_str())
    }

    /// The value of a metric, if this run has it.
    pub fn value(&self, metric: &str) -> Option<&Metric> {
        self.metrics().iter().find(|candidate| candidate.name == metric)
    }

    /// Its values; none of a run that failed.
    pub fn metrics(&self) -> &[Metric] {
        match &self.outcome {
            Outcome::Measured { metrics, .. } => metrics,
            Outcome::Failed { .. } => &[],
        }
    }

    /// Why it does not count; `None` if it does.
    pub fn failure(&self) -> Option<&str> {
        self.outcome.failure()
    }

    /// What is to be said of its values; nothing of a failed run.
    pub fn notes(&self) -> &[String] {
        match &self.outcome {
            Outcome::Measured { notes, .. } => notes,
            Outcome::Failed { .. } => &[],
        }
    }
}

/// The last try of each step, in the order they ran: a failure that another try made good is none. `step`: what one is a try of.
pub fn last_tries<'a, T: 'a, S: Ord>(
    tries: impl DoubleEndedIterator<Item = &'a T>,
    step: impl Fn(&'a T) -> S,
) -> Vec<&'a T> {
    let mut seen = BTreeSet::new();
    let mut last: Vec<&T> = tries.rev().filter(|&one| seen.insert(step(one))).collect();
    last.reverse();
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::sample_results;

    #[test]
    fn the_last_try_of_a_step_counts_and_the_same_place_of_another_design_is_another_step() {
        let runs = sample_results().runs;
        let failed = |run: &Run| Run { outcome: Outcome::Failed { why: "a neighbour".into() }, ..run.clone() };
        let raced = Run { purpose: Purpose::Race, ..failed(&runs[0]) };
        let mut tries = vec![raced.clone()];
        tries.extend(runs.iter().flat_map(|run| [failed(run), run.clone()]));
        let last: Vec<Run> = last_tries(tries.iter(), Run::step).into_iter().cloned().collect();
        assert_eq!((&last[0], &last[1..]), (&raced, &runs[..]));
    }

    #[test]
    fn results_survive_json() {
        let results = sample_results();
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(Results::parse(&text).unwrap(), results);
        assert!(Results::parse(&text.replace("results/2", "results/9")).is_err(), "a newer one is refused");
    }
}
