//! One guest over several nodes, in the modes people run such guests in, against processes on the same nodes.
//!
//! The experiment of "KVM on SGI UV 2000" (seed 003, ch. 3.4 and 3.5.4 to 3.5.8) on any host: a guest over 1, 2, 4 … nodes, as
//! libvirt makes it by default, pinned, with guest cells, and as one guest a node. Each part of it has a program whose
//! threads work on memory that they touched first. What differs is how near that memory is; where the processors count
//! accesses, that is read, and not concluded from time.

mod mode;
mod parts;
mod path;

use nearmetal_cost::rounds_of_accesses;
use nearmetal_load::{WorkJob, Workload};
use nearmetal_results::{Results, Slice};
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

pub use self::mode::Mode;
pub use self::parts::{NodePart, parts_of};
use self::path::ModesPath;
use crate::conditions::Conditions;
use crate::engine::{Fresh, Pairs, Plan, Session, Tenant};
use crate::error::MeasureError;
use crate::finish::{Experiment, Request, lab_caveat};
use crate::record::record;
use crate::together::MOST_TOGETHER;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModesRequest {
    /// Domain.
    pub guest: String,
    /// Its definition, whose machine all clones have; a clone on one node has its vCPUs, one on several so many times them.
    pub xml: String,
    /// Memory of a clone on each node.
    pub memory: Bytes,
    /// The nodes' parts, in the order in which they join.
    pub parts: Vec<NodePart>,
    /// Numbers of nodes that are measured.
    pub counts: Vec<usize>,
    /// The modes beside native. An earlier version always had all.
    #[serde(default = "with_guests")]
    pub modes: Vec<Mode>,
    /// What the program of each part runs. An earlier version knew one load here, and called it `job`.
    #[serde(alias = "job", deserialize_with = "a_load")]
    pub workload: Workload,
    /// Whether one program works on all parts, in the place of one on each.
    #[serde(default)]
    pub single: bool,
    /// Pairs for each number of nodes.
    pub pairs: u32,
    /// A/A pairs of the guest with cells, or of the last mode where that is left out, over all nodes.
    pub same_arm_pairs: u32,
    /// The least overlap of a sample that counts, from 0 to 1.
    pub least_overlap: f64,
    /// Whether samples are few and short.
    pub quick: bool,
    /// Under what.
    pub conditions: Conditions,
}

fn with_guests() -> Vec<Mode> {
    Mode::WITH_GUESTS.to_vec()
}

impl Request for ModesRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.guest.clone()]
    }

    fn check(&self) -> Result<(), MeasureError> {
        let (all, most) = (self.parts.len(), MOST_TOGETHER);
        if all > most {
            return Err(MeasureError::Asked(format!(
                "{all} nodes, and {most} at once are possible: choose fewer (--nodes)"
            )));
        }
        match self.counts.iter().find(|count| !(1..=all).contains(*count)) {
            Some(count) => Err(MeasureError::Asked(format!("{count} nodes at once, and 1 to {all} are possible"))),
            None if self.single && self.over(1).is_none() => Err(MeasureError::Asked(format!(
                "{} is not made for several nodes at once: leave --single out",
                self.workload.label()
            ))),
            None if self.measured().len() < 2 => {
                Err(MeasureError::Asked("no mode to compare with native: name one with --mode".to_owned()))
            }
            None => Ok(()),
        }
    }

    /// Runs the experiment and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// The guest runs and may not be paused, a clone does not come up or does not run where it was pinned, or four samples in
    /// a row failed.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        session.pause_original(&self.guest)?;
        let tenants: Vec<Tenant> = self.parts.iter().map(|part| Tenant::new(&part_name(part), part.slice())).collect();
        let slices: Vec<Slice> = tenants.iter().map(|tenant| tenant.slice.clone()).collect();
        session.stay_off(&slices)?;
        let all = together(&slices);
        let mut path = ModesPath::new(self, all.clone(), session)?;
        let mut arms = Vec::new();
        let modes = self.measured();
        for mode in modes.iter().copied() {
            // What was read back of guests takes its place once they have run.
            arms.push(record(session, &mode.name(), mode.description(), "", None, &all)?);
        }
        let workload = self.workload.clone();
        let mut design = Pairs::new(Plan {
            arms: arms.iter().map(|arm| arm.name.clone()).collect(),
            counts: self.counts.clone(),
            paired: vec![workload.clone()],
            rounds: self.pairs,
            resolve: None,
            // What a plan makes; without it, the last one.
            same_arm: vec![modes.iter().position(|mode| *mode == Mode::Cells).unwrap_or(modes.len() - 1)],
            same_arm_pairs: self.same_arm_pairs,
            single_shot: Vec::new(),
            fresh: Fresh::No,
            ceiling: None,
            whole_or_nothing: false,
            reasons: false,
            accesses: rounds_of_accesses(session.fs, self.pairs),
            offers: false,
            accesses_in: (0..arms.len()).collect(),
            seed: self.conditions.seed,
        });
        let mut caveats: Vec<String> = lab_caveat(&self.conditions.environment).into_iter().collect();
        caveats.push(
            "guests are booted afresh for every sample: where one that floats lands is the luck of its boot".into(),
        );
        if self.single {
            caveats.push(format!(
                "one program works on all nodes: on two it is {}, and so on",
                self.over(2).map_or_else(String::new, |workload| workload.label())
            ));
        }
        let mut experiment = Experiment {
            experiment: "modes",
            quick: self.quick,
            arms,
            tenants,
            least_overlap: Some(self.least_overlap),
            caveats,
            workloads: vec![workload],
            facts: vec![("guest".to_owned(), self.guest.clone())],
            path: &mut path,
        };
        let runs = experiment.runs(&mut design, session)?;
        experiment.document(runs, session)
    }
}

impl ModesRequest {
    /// The modes that are measured, in the order of the arms: one program cannot be in several guests.
    fn measured(&self) -> Vec<Mode> {
        let is_measured = |mode: &Mode| *mode == Mode::Native || self.modes.contains(mode);
        Mode::ALL.into_iter().filter(|mode| is_measured(mode) && !(self.single && *mode == Mode::PerNode)).collect()
    }

    /// The load of one program on so many parts; `None` if it is not made for that.
    fn over(&self, parts: usize) -> Option<Workload> {
        match &self.workload {
            Workload::Jvm(job) => Some(job.over(parts as u32).into()),
            _ => None,
        }
    }
}

/// A load, or the arguments of the only one there was.
fn a_load<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Workload, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Load(Workload),
        Work(WorkJob),
    }
    Ok(match Either::deserialize(from)? {
        Either::Load(workload) => workload,
        Either::Work(job) => job.into(),
    })
}

fn part_name(part: &NodePart) -> String {
    format!("node {}", part.node)
}

/// All parts as one slice.
fn together(slices: &[Slice]) -> Slice {
    let cpus = |of: fn(&Slice) -> &CpuSet| slices.iter().fold(CpuSet::new(), |all, slice| all.union(of(slice)));
    Slice {
        cpus: cpus(|slice| &slice.cpus),
        nodes: slices.iter().fold(NodeSet::new(), |all, slice| all.union(&slice.nodes)),
        page_size: None,
        device: String::new(),
        region: Bytes::ZERO,
        cpus_on_top: cpus(|slice| &slice.cpus_on_top),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_an_earlier_version_is_read() {
        let parsed = |text: &str| {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            a_load(&mut deserializer).unwrap()
        };
        let job = WorkJob { threads: 2, each: Bytes::from_mib(16), seconds: 5 };
        assert_eq!(parsed(&serde_json::to_string(&job).unwrap()), Workload::from(job.clone()));
        let today = Workload::from(job);
        assert_eq!(parsed(&serde_json::to_string(&today).unwrap()), today);
    }
}
