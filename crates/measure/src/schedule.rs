//! The order of runs: rounds in which every arm runs once, in an order drawn per round.
//!
//! Running all of one arm and then all of the next lets drift (neighbours, temperature) pass for a difference; in a
//! round the arms are minutes apart at most, and the random order keeps any of them from always going first
//! (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013).

use crate::results::{ArmKind, Purpose};
use crate::workload::Workload;

/// What is to be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// Arms, at least two.
    pub arms: Vec<ArmKind>,
    /// Workloads run in pairs.
    pub paired: Vec<Workload>,
    /// Rounds of pairs: n of the intervals.
    pub rounds: u32,
    /// Arms measured against themselves, for the noise floor.
    pub same_arm: Vec<ArmKind>,
    /// A/A pairs for each of them.
    pub same_arm_pairs: u32,
    /// Workloads run once in each arm.
    pub single_shot: Vec<Workload>,
}

/// One run to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Round, from 0 over the whole schedule.
    pub round: u32,
    /// Position inside the round.
    pub position: u32,
    /// Why.
    pub purpose: Purpose,
    /// Arm.
    pub arm: ArmKind,
    /// Workload.
    pub workload: Workload,
    /// Seed for the workload.
    pub seed: u64,
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): four lines, reproducible from the printed seed on every platform.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = (self.next() % (last as u64 + 1)) as usize;
            items.swap(last, other);
        }
    }
}

/// The steps of a design, in order. The same design and seed give the same steps.
pub fn schedule(design: &Design, seed: u64) -> Vec<Step> {
    let mut random = SplitMix::new(seed);
    // Each entry is one round: its purpose, workload and arms.
    let mut rounds: Vec<(Purpose, Workload, Vec<ArmKind>)> = Vec::new();
    for workload in &design.paired {
        for _ in 0..design.rounds {
            rounds.push((Purpose::Pair, workload.clone(), design.arms.clone()));
        }
        for arm in &design.same_arm {
            for _ in 0..design.same_arm_pairs {
                rounds.push((Purpose::SameArm, workload.clone(), vec![*arm, *arm]));
            }
        }
    }
    // A/A rounds are spread among the others, so that the noise floor is that of the same minutes.
    random.shuffle(&mut rounds);
    rounds
        .extend(design.single_shot.iter().map(|workload| (Purpose::SingleShot, workload.clone(), design.arms.clone())));
    let mut steps = Vec::new();
    for (round, (purpose, workload, mut arms)) in rounds.into_iter().enumerate() {
        random.shuffle(&mut arms);
        // fio takes a positive 32-bit seed on every version.
        let seed = (random.next() >> 33) | 1;
        for (position, arm) in arms.into_iter().enumerate() {
            let workload = workload.clone();
            steps.push(Step { round: round as u32, position: position as u32, purpose, arm, workload, seed });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FioJob;
    use nearmetal_units::Bytes;
    use proptest::prelude::*;

    fn design(rounds: u32) -> Design {
        let job = |size| Workload::Fio(FioJob::first_seed(Bytes::new(size), 5, 1));
        Design {
            arms: vec![ArmKind::BareSlice, ArmKind::AsFound, ArmKind::Planned, ArmKind::VirtInstall],
            paired: vec![job(4096)],
            rounds,
            same_arm: vec![ArmKind::BareSlice, ArmKind::Planned],
            same_arm_pairs: 2,
            single_shot: vec![job(512), job(8192)],
        }
    }

    proptest! {
        #[test]
        fn every_round_holds_every_arm_once_with_one_seed(seed: u64, rounds in 1u32..12) {
            let steps = schedule(&design(rounds), seed);
            prop_assert_eq!(&steps, &schedule(&design(rounds), seed));
            let pairs = steps.iter().filter(|step| step.purpose == Purpose::Pair).count();
            prop_assert_eq!(pairs, rounds as usize * 4);
            prop_assert_eq!(steps.iter().filter(|step| step.purpose == Purpose::SameArm).count(), 8);
            for round in 0..=steps.last().map_or(0, |step| step.round) {
                let of_round: Vec<_> = steps.iter().filter(|step| step.round == round).collect();
                prop_assert!(of_round.iter().all(|step| step.seed == of_round[0].seed && step.seed > 0 && step.seed < 1 << 31));
                let arms: std::collections::BTreeSet<_> = of_round.iter().map(|step| step.arm).collect();
                match of_round[0].purpose {
                    Purpose::SameArm => prop_assert_eq!((of_round.len(), arms.len()), (2, 1)),
                    _ => prop_assert_eq!((of_round.len(), arms.len()), (4, 4)),
                }
            }
        }
    }

    #[test]
    fn no_arm_always_goes_first() {
        let firsts: std::collections::BTreeSet<_> =
            schedule(&design(40), 1).iter().filter(|step| step.position == 0).map(|step| step.arm).collect();
        assert_eq!(firsts.len(), 4);
    }
}
