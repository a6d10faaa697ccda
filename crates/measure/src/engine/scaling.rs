//! The design of scaling: all tenants at once in every arm, or one, two and so on to all of them.

use std::collections::VecDeque;

use super::SplitMix;
use super::round::{Design, Fresh, Round, Step};
use crate::error::MeasureError;
use crate::load::Workload;
use crate::results::{Purpose, Run};

/// What is to be run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scaling {
    queue: VecDeque<Round>,
    total: usize,
}

/// What a scaling is made of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScalingPlan {
    /// Places of the arms that are paired, bare metal among them.
    pub arms: Vec<usize>,
    /// Numbers of tenants at once.
    pub counts: Vec<usize>,
    /// What each tenant runs.
    pub workload: Workload,
    /// Pairs for each number of tenants.
    pub pairs: u32,
    /// The arm that is measured against itself with all tenants, and how often.
    pub same_arm: Option<(usize, u32)>,
    /// The arm without a slice, and how often it is sampled first, with as many as there are tenants.
    pub ceiling: Option<(usize, u32)>,
    /// Seed of the order.
    pub seed: u64,
}

impl Scaling {
    /// The order: rounds of all numbers of tenants are mixed, and a coin decides which arm of each goes first.
    pub(crate) fn new(plan: &ScalingPlan) -> Self {
        let mut random = SplitMix::new(plan.seed);
        let all = plan.counts.iter().copied().max().unwrap_or(1);
        let mut rounds: Vec<(Purpose, usize, Vec<usize>)> = Vec::new();
        for count in &plan.counts {
            rounds.extend((0..plan.pairs).map(|_| (Purpose::Pair, *count, plan.arms.clone())));
        }
        if let Some((arm, pairs)) = plan.same_arm {
            rounds.extend((0..pairs).map(|_| (Purpose::SameArm, all, vec![arm, arm])));
        }
        random.shuffle(&mut rounds);
        if let Some((arm, samples)) = plan.ceiling {
            let ceiling = (0..samples).map(|_| (Purpose::Ceiling, all, vec![arm]));
            rounds.splice(0..0, ceiling);
        }
        let mut queue = VecDeque::new();
        let mut total = 0;
        for (number, (purpose, count, mut arms)) in rounds.into_iter().enumerate() {
            random.shuffle(&mut arms);
            // Each tenant has the next one, in all arms the same.
            let seed = random.load_seed();
            let step = |arm| Step { purpose, arm, count, workload: plan.workload.clone(), seed };
            let steps: Vec<Step> = arms.into_iter().map(step).collect();
            total += steps.len();
            let whole_or_nothing = purpose == Purpose::Pair;
            queue.push_back(Round { number: number as u32, steps, fresh: Fresh::No, whole_or_nothing });
        }
        Self { queue, total }
    }
}

impl Design for Scaling {
    fn next(
        &mut self,
        _: &[Run],
        _: &mut dyn FnMut(&mut Vec<usize>, &mut SplitMix),
    ) -> Result<Option<Round>, MeasureError> {
        Ok(self.queue.pop_front())
    }

    fn total(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_units::Bytes;

    use super::*;
    use crate::load::FioJob;

    #[test]
    fn every_number_gets_its_pairs_and_no_side_always_goes_first() {
        let plan = ScalingPlan {
            arms: vec![0, 1],
            counts: vec![1, 2, 4],
            workload: FioJob::first_seed(Bytes::from_kib(4), 5, 1).into(),
            pairs: 20,
            same_arm: Some((1, 2)),
            ceiling: Some((2, 3)),
            seed: 7,
        };
        let rounds: Vec<Round> = Scaling::new(&plan).queue.into();
        assert_eq!(Scaling::new(&plan), Scaling::new(&plan));
        let pairs: Vec<&Round> = rounds.iter().filter(|round| round.steps[0].purpose == Purpose::Pair).collect();
        for count in [1, 2, 4] {
            assert_eq!(pairs.iter().filter(|round| round.steps[0].count == count).count(), 20);
        }
        let first = pairs.iter().filter(|round| round.steps[0].arm == 0).count();
        assert!((15..=45).contains(&first), "{first} of 60");
        assert!(pairs[..20].iter().any(|round| round.steps[0].count != pairs[0].steps[0].count), "they are mixed");
        assert!(
            rounds[..3].iter().all(|round| round.steps[0].purpose == Purpose::Ceiling && round.steps[0].count == 4)
        );
        let of_all = rounds.iter().filter(|round| round.steps[0].purpose == Purpose::SameArm);
        assert!(of_all.clone().count() == 2 && of_all.clone().all(|round| round.steps[0].count == 4));
    }
}
