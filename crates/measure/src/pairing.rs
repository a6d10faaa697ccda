//! What is asked of an experiment that runs its arms in pairs, whatever the arms are.

use nearmetal_cost::{rounds_of_accesses, why_no_reasons};
use nearmetal_load::Workload;
use nearmetal_results::{ArmName, Role};
use serde::{Deserialize, Serialize};

use crate::engine::{Fresh, Pairs, Plan, Session};

/// What runs, and how often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pairing {
    /// Workloads run in pairs.
    pub paired: Vec<Workload>,
    /// Rounds of pairs: n of the intervals, or the pilot.
    pub rounds: u32,
    /// The factor above 1, such as 0.05, to which every interval is brought: the rounds are then a pilot, from which the
    /// number of pairs is fixed. `None`: the rounds are all.
    pub resolve: Option<f64>,
    /// A/A pairs of each arm that is measured against itself.
    pub same_arm_pairs: u32,
    /// Workloads run once in each arm: shown, never claimed.
    pub single_shot: Vec<Workload>,
    /// Memory workloads, run once on bare metal and in the guests.
    pub memory: Vec<Workload>,
    /// Guests stay up between rounds.
    pub quick: bool,
    /// Whether a lab that counts work counts accesses to memory, too, in slow rounds of their own. An earlier version always did.
    #[serde(default = "counted")]
    pub accesses: bool,
    /// Whether guests' exits are counted by reason, in a run of its own for each. An earlier version always did.
    #[serde(default = "counted")]
    pub reasons: bool,
}

fn counted() -> bool {
    true
}

impl Pairing {
    /// The design for these arms. `same_arm`: those that are measured against themselves. `memory`: where the memory
    /// workloads run, one group after the other.
    pub(crate) fn design(
        &self,
        arms: &[ArmName],
        same_arm: Vec<usize>,
        memory: &[&[usize]],
        fresh: Fresh,
        session: &mut Session<'_>,
    ) -> Pairs {
        let untold = if self.reasons { why_no_reasons(session.fs) } else { None };
        let reasons = self.reasons && untold.is_none();
        untold.into_iter().for_each(|note| session.note(note));
        let all: Vec<usize> = (0..arms.len()).collect();
        let sides = all.iter().copied().filter(|arm| matches!(arms[*arm].role, Role::AsFound | Role::Planned));
        let mut single_shot: Vec<(Workload, Vec<usize>)> =
            self.single_shot.iter().map(|workload| (workload.clone(), all.clone())).collect();
        for group in memory {
            single_shot.extend(self.memory.iter().map(|workload| (workload.clone(), group.to_vec())));
        }
        Pairs::new(Plan {
            counts: vec![1],
            ceiling: None,
            whole_or_nothing: false,
            arms: arms.to_vec(),
            paired: self.paired.clone(),
            rounds: self.rounds,
            resolve: self.resolve,
            same_arm,
            same_arm_pairs: self.same_arm_pairs,
            single_shot,
            fresh,
            reasons,
            accesses: if self.accesses { rounds_of_accesses(session.fs, self.rounds) } else { 0 },
            offers: true,
            // What the plan is for: such a round is slow, and bare metal's memory is near by its binding.
            accesses_in: sides.collect(),
            seed: session.conditions.seed,
        })
    }

    /// Everything that runs.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Workload> {
        self.paired.iter().chain(&self.single_shot).chain(&self.memory)
    }
}
