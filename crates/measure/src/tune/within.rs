//! A design that ends within a time: before each round it is asked what the round will cost, boots included.

use std::collections::BTreeMap;

use nearmetal_results::Run;

use super::MARGIN;
use crate::engine::{Design, Round, SplitMix};
use crate::error::MeasureError;

/// Hands out the rounds of a design while they fit into what is left of its seconds. With one clone up at a time a run's
/// seconds include the boot of its guest, so the sum over all runs is the wall time. A round is taken to cost what the longest
/// step of each of its arms took, all its tries, and a quarter more: no time is exceeded unless a step takes longer than that, as
/// one that hangs does.
pub(crate) struct Within<D> {
    design: D,
    /// Ids of all arms, by the places that steps name them by.
    arms: Vec<String>,
    seconds: f64,
    /// What a step of each arm costs, as far as is known.
    costs: Vec<f64>,
    /// Whether a round was refused.
    ended: bool,
}

impl<D: Design> Within<D> {
    /// `costs`: what a step of each arm is expected to take before any has run, in seconds.
    pub(crate) fn new(design: D, arms: Vec<String>, seconds: f64, costs: Vec<f64>) -> Self {
        Self { design, arms, seconds, costs, ended: false }
    }

    /// What a step of each arm takes, in seconds: the longest there was, or what was expected.
    pub(crate) fn costs(&self) -> Vec<f64> {
        self.costs.clone()
    }

    /// The design as it stands.
    pub(crate) fn into_design(self) -> D {
        self.design
    }

    fn learn(&mut self, runs: &[Run]) {
        for (place, id) in self.arms.iter().enumerate() {
            let mut steps: BTreeMap<_, f64> = BTreeMap::new();
            for run in runs.iter().filter(|run| run.arm == *id) {
                *steps.entry(run.step()).or_default() += run.seconds;
            }
            self.costs[place] = steps.into_values().reduce(f64::max).unwrap_or(self.costs[place]);
        }
    }
}

impl<D: Design> Design for Within<D> {
    fn next(
        &mut self,
        runs: &[Run],
        arrange: &mut dyn FnMut(&mut Vec<usize>, &mut SplitMix),
    ) -> Result<Option<Round>, MeasureError> {
        if self.ended {
            return Ok(None);
        }
        let Some(round) = self.design.next(runs, arrange)? else { return Ok(None) };
        self.learn(runs);
        let took: f64 = runs.iter().map(|run| run.seconds).sum();
        let next: f64 = round.steps.iter().map(|step| self.costs[step.arm]).sum::<f64>() * MARGIN;
        self.ended = took + next > self.seconds;
        Ok((!self.ended).then_some(round))
    }

    fn total(&self) -> usize {
        self.design.total()
    }

    fn notes(&self) -> Vec<String> {
        self.design.notes()
    }
}
