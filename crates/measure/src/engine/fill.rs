//! The design of tiles: one more of them until the machine is full.
//!
//! Every arm that is not full yet has a round of some samples of one tile, then one of two, and so on. The samples of an arm
//! follow each other, since its guests are booted for its turn; which arm goes first is drawn for each number of tiles. An
//! arm is full where quality of service fails in more than half of its samples, where one tile more does not raise the score,
//! or where fewer than half of the samples give figures.

use std::collections::VecDeque;

use nearmetal_load::Workload;
use nearmetal_results::{Look, Purpose, Run, tiles_held};

use super::SplitMix;
use super::round::{Design, Fresh, Round, Step};
use crate::error::MeasureError;

/// What is to be filled.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FillPlan {
    /// Ids of the arms; steps name them by their place.
    pub arms: Vec<String>,
    /// Tenants of a tile.
    pub each: usize,
    /// Tiles there are.
    pub tiles: usize,
    /// Samples of each number of tiles in each arm.
    pub samples: u32,
    /// What the record calls the work of all tenants.
    pub workload: Workload,
    /// The same seed gives the same order.
    pub seed: u64,
}

/// See the module.
pub(crate) struct Fill<'a> {
    plan: FillPlan,
    look: &'a dyn Fn(&Run) -> Option<Look>,
    random: SplitMix,
    /// Rounds of the number of tiles that is under way.
    queue: VecDeque<Round>,
    /// Number of tiles of the rounds that were queued last.
    tiles: usize,
    next_number: u32,
}

impl<'a> Fill<'a> {
    pub(crate) fn new(plan: FillPlan, look: &'a dyn Fn(&Run) -> Option<Look>) -> Self {
        let random = SplitMix::new(plan.seed);
        Self { plan, look, random, queue: VecDeque::new(), tiles: 0, next_number: 0 }
    }
}

impl Design for Fill<'_> {
    fn next(
        &mut self,
        runs: &[Run],
        arrange: &mut dyn FnMut(&mut Vec<usize>, &mut SplitMix),
    ) -> Result<Option<Round>, MeasureError> {
        if let Some(round) = self.queue.pop_front() {
            return Ok(Some(round));
        }
        let FillPlan { arms, each, tiles, samples, workload, .. } = &self.plan;
        let has_room = |arm: &usize| tiles_held(runs, &arms[*arm], *each, *tiles, self.look).is_none();
        let mut order: Vec<usize> = (0..arms.len()).filter(has_room).collect();
        if order.is_empty() || self.tiles >= *tiles {
            return Ok(None);
        }
        self.tiles += 1;
        arrange(&mut order, &mut self.random);
        // One for all arms: what is asked, and when, is the same.
        let seeds: Vec<u64> = (0..*samples).map(|_| self.random.load_seed()).collect();
        let count = self.tiles * each;
        let step =
            |arm: usize, seed: u64| Step { purpose: Purpose::Fill, arm, count, workload: workload.clone(), seed };
        for arm in order {
            let steps = seeds.iter().map(|seed| step(arm, *seed)).collect();
            self.queue.push_back(Round { number: self.next_number, steps, fresh: Fresh::No, whole_or_nothing: false });
            self.next_number += 1;
        }
        Ok(self.queue.pop_front())
    }

    fn total(&self) -> usize {
        self.plan.arms.len() * self.plan.tiles * self.plan.samples as usize
    }
}

#[cfg(test)]
mod tests;
