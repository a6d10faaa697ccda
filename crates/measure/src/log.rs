//! Every run, written down as it ends, so that a measurement that was interrupted goes on where it stopped.

use crate::arm::ArmName;
use crate::conditions::Conditions;
use crate::engine::Round;
use crate::error::MeasureError;
use crate::results::Run;
use crate::store::{Begun, Store};

/// A measurement's place in the store.
#[derive(Debug)]
pub(crate) struct Log {
    store: Store,
    id: i64,
    /// What an interrupted measurement had written down, by phase.
    recorded: Vec<(u32, Run)>,
    /// Designs are carried out one after the other; each counts its rounds anew.
    phase: u32,
    number: u32,
}

impl Log {
    /// Begins, or goes on with the one that the conditions name; `None` where nothing is kept.
    ///
    /// # Errors
    /// The store cannot be opened or written, or the measurement to go on with is another one.
    pub(crate) fn open(conditions: &Conditions, begun: &Begun) -> Result<Option<Self>, MeasureError> {
        let Some(path) = &conditions.store else { return Ok(None) };
        let mut store = Store::open(path)?;
        let (id, recorded) = match conditions.resume {
            None => (store.begin(begun)?, Vec::new()),
            Some(id) => {
                let entry = store.entry(id)?;
                if (entry.experiment.as_str(), entry.guests.as_slice()) != (begun.experiment, begun.guests.as_slice()) {
                    let (experiment, guests) = (&entry.experiment, entry.guests.join(", "));
                    return Err(MeasureError::Asked(format!("measurement {id} is a {experiment} of {guests}")));
                }
                // Figures of two kernels are two experiments.
                if entry.kernel != begun.kernel {
                    return Err(MeasureError::Unfit(format!(
                        "measurement {id} began on kernel {}, and this is {}: measure anew",
                        entry.kernel, begun.kernel
                    )));
                }
                store.reopen(id)?;
                let mut recorded = store.runs(id)?;
                // The failures it was given up for are made again: what was behind them may be better by now.
                while recorded.last().is_some_and(|(_, run)| run.failure().is_some()) {
                    recorded.pop();
                }
                (id, recorded)
            }
        };
        Ok(Some(Self { store, id, recorded, phase: 0, number: 0 }))
    }

    /// The next design begins.
    pub(crate) fn next_phase(&mut self) {
        self.phase += 1;
    }

    /// Writes a run down.
    pub(crate) fn add(&mut self, run: &Run) -> Result<(), MeasureError> {
        self.number += 1;
        self.store.add_run(self.id, self.number, self.phase, run)
    }

    /// The runs of a round that were written down whole; they are not made again.
    pub(crate) fn recorded(&mut self, round: &Round, arms: &[ArmName]) -> Vec<Run> {
        let phase = self.phase;
        let mut of: Vec<Run> = self
            .recorded
            .iter()
            .filter(|(own, run)| *own == phase && run.round == round.number)
            .map(|(_, run)| run.clone())
            .collect();
        let is_there = |(position, step): (u32, &crate::engine::Step)| {
            let id = arms.get(step.arm).map(|arm| arm.id.as_str());
            let same = |run: &Run| Some(run.arm.as_str()) == id && run.workload == step.workload;
            of.iter().any(|run| run.position == position && same(run))
        };
        let later = self.recorded.iter().any(|(own, run)| (*own, run.round) > (phase, round.number));
        let whole = later || (0_u32..).zip(&round.steps).all(is_there);
        if !whole {
            of.clear();
        }
        self.number += of.len() as u32;
        of
    }

    /// The measurement is over: its document takes the place of its runs.
    pub(crate) fn finish(&mut self, document: &str, winner: Option<&str>) -> Result<(), MeasureError> {
        self.store.finish(self.id, document, winner)
    }

    /// The measurement ended with an error; what was written down stays, to go on with.
    pub(crate) fn give_up(&mut self, why: &str) -> Result<(), MeasureError> {
        self.store.give_up(self.id, why)
    }
}
