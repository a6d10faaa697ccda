//! Every run, written down as it ends, so that a measurement that was interrupted goes on where it stopped.

use nearmetal_results::{ArmName, Begun, Run, Store};

use crate::conditions::Conditions;
use crate::engine::Round;
use crate::error::MeasureError;

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
                let mut recorded = store.runs(id)?;
                // Figures of two kernels, or of two QEMUs, are two experiments. Where there are none yet, libvirt may not have been
                // there to ask.
                let on = [("kernel", &entry.kernel, &begun.kernel), ("QEMU", &entry.qemu, &begun.qemu)];
                let other = on.into_iter().find(|(_, then, now)| then != now && !recorded.is_empty());
                if let Some((what, then, now)) = other {
                    return Err(MeasureError::Unfit(format!(
                        "measurement {id} began on {what} {then}, and this is {now}: measure anew"
                    )));
                }
                store.reopen(id, begun)?;
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
        Ok(self.store.add_run(self.id, self.number, self.phase, run)?)
    }

    /// The runs of a round that were written down whole; they are not made again.
    ///
    /// # Errors
    /// Something else was run in that round: this version designs it otherwise, or what was raced has another leader now.
    pub(crate) fn recorded(&mut self, round: &Round, arms: &[ArmName]) -> Result<Vec<Run>, MeasureError> {
        let phase = self.phase;
        let mut of: Vec<Run> = self
            .recorded
            .iter()
            .filter(|(own, run)| *own == phase && run.round == round.number)
            .map(|(_, run)| run.clone())
            .collect();
        let is_of = |run: &Run, step: &crate::engine::Step| {
            arms.get(step.arm).is_some_and(|arm| arm.id == run.arm) && run.workload == step.workload
        };
        let is_asked = |run: &Run| round.steps.get(run.position as usize).is_some_and(|step| is_of(run, step));
        if let Some(other) = of.iter().find(|run| !is_asked(run)) {
            return Err(MeasureError::Unfit(format!(
                "measurement {} ran `{}` with {} in round {}, where something else would run now: measure anew",
                self.id,
                other.arm,
                other.workload.label(),
                round.number
            )));
        }
        let is_there = |(position, step): (u32, &crate::engine::Step)| {
            of.iter().any(|run| run.position == position && is_of(run, step))
        };
        let later = self.recorded.iter().any(|(own, run)| (*own, run.round) > (phase, round.number));
        let whole = later || (0_u32..).zip(&round.steps).all(is_there);
        if !whole {
            of.clear();
        }
        self.number += of.len() as u32;
        Ok(of)
    }

    /// The measurement is over: its document takes the place of its runs.
    pub(crate) fn finish(&mut self, document: &str, winner: Option<&str>) -> Result<(), MeasureError> {
        Ok(self.store.finish(self.id, document, winner)?)
    }

    /// The measurement ended with an error; what was written down stays, to go on with.
    pub(crate) fn give_up(&mut self, why: &str) -> Result<(), MeasureError> {
        Ok(self.store.give_up(self.id, why)?)
    }
}
