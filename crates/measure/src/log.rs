//! Every run, written down as it ends, so that a measurement that was interrupted goes on where it stopped.

use nearmetal_load::LoadError;
use nearmetal_results::{ArmName, Begun, Run, Store, as_json};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::conditions::Conditions;
use crate::engine::{Round, Step};
use crate::error::MeasureError;

/// A measurement's place in the store.
#[derive(Debug)]
pub(crate) struct Log {
    store: Store,
    id: i64,
    /// What an interrupted measurement had written down, by phase, in the order in which it ran, and nobody asked for yet.
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
                    return Err(MeasureError::Anew(format!(
                        "measurement {id} began on {what} {then}, and this is {now}"
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

    /// What the measurement's first session worked out for its time; this one does where none has.
    ///
    /// # Errors
    /// The time does not suffice; the store cannot be written, or what it keeps is not of this form.
    pub(crate) fn times<T: Serialize + DeserializeOwned>(
        &mut self,
        work_out: impl FnOnce() -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        let text = match self.store.times(self.id)? {
            Some(text) => text,
            None => {
                let text = as_json(&work_out()?);
                self.store.keep_times(self.id, &text)?;
                text
            }
        };
        // Out of the text in its first session too: all have the same to the last digit.
        serde_json::from_str(&text).map_err(|error| {
            let what = format!("what the store keeps of the times of measurement {}", self.id);
            LoadError::Unreadable { what, why: error.to_string(), text: text.chars().take(80).collect() }.into()
        })
    }

    /// Writes a run down.
    pub(crate) fn add(&mut self, run: &Run) -> Result<(), MeasureError> {
        self.number += 1;
        Ok(self.store.add_run(self.id, self.number, self.phase, run)?)
    }

    /// The runs of a round that were written down whole; they are not made again.
    ///
    /// # Errors
    /// Something else was run: this version designs it otherwise, or what was raced has another leader now.
    pub(crate) fn recorded(&mut self, round: &Round, arms: &[ArmName]) -> Result<Vec<Run>, MeasureError> {
        let now = (self.phase, round.number);
        let is_of = |run: &Run, step: &Step| {
            arms.get(step.arm).is_some_and(|arm| arm.id == run.arm)
                && (run.purpose, run.count, run.seed) == (step.purpose, step.count, step.seed)
                && run.workload == step.workload
        };
        let is_asked =
            |(_, run): &(u32, Run)| round.steps.get(run.position as usize).is_some_and(|step| is_of(run, step));
        let of = self.recorded.iter().take_while(|(phase, run)| (*phase, run.round) == now).count();
        // What comes next was of another round: nobody asks for that one any more, or nobody asked for this one then.
        let next = self.recorded.first().filter(|_| of == 0 && !round.steps.is_empty());
        let other = next.or_else(|| self.recorded[..of].iter().find(|recorded| !is_asked(recorded)));
        if let Some((_, other)) = other {
            return Err(MeasureError::Anew(format!(
                "measurement {} ran `{}` with {} in round {}, where something else would run now",
                self.id,
                other.arm,
                other.workload.label(),
                other.round
            )));
        }
        let is_there = |(position, step): (u32, &Step)| {
            self.recorded[..of].iter().any(|(_, run)| run.position == position && is_of(run, step))
        };
        let whole = of < self.recorded.len() || (0_u32..).zip(&round.steps).all(is_there);
        if !whole {
            // Nothing is behind them, and the first run that is made again takes their place in the store.
            self.recorded.clear();
            return Ok(Vec::new());
        }
        self.number += of as u32;
        Ok(self.recorded.drain(..of).map(|(_, run)| run).collect())
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

#[cfg(test)]
mod tests {
    use nearmetal_load::FioJob;
    use nearmetal_results::{Environment, Outcome, Purpose, Role};
    use nearmetal_units::Bytes;

    use super::*;
    use crate::engine::Fresh;

    /// A measurement of two arms, in a store of its own.
    struct Kept(tempfile::TempDir);

    impl Kept {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        /// A session of it, under a QEMU of this version.
        fn session(&self, resume: Option<i64>, qemu: &str) -> Result<Log, MeasureError> {
            let state = self.0.path();
            let environment = Environment::Lab { machine: "quad".into() };
            let conditions = Conditions {
                seed: 7,
                appliance: state.to_owned(),
                probe: state.join("probe"),
                state: state.to_owned(),
                environment: environment.clone(),
                guest_files: state.join("boot"),
                loads: None,
                kit: None,
                pause: true,
                store: Some(state.join("results.sqlite")),
                plan: None,
                resume,
                stop: crate::Stop::default(),
            };
            let begun = Begun {
                experiment: "slice",
                guests: vec!["web1".to_owned()],
                created: "2026-01-01T00:00:00Z".to_owned(),
                environment: &environment,
                kernel: "6.12.41".to_owned(),
                qemu: qemu.to_owned(),
                device: None,
                plan: None,
                request: "{}".to_owned(),
            };
            let mut log = Log::open(&conditions, &begun)?.unwrap();
            log.next_phase();
            Ok(log)
        }

        /// The same, that goes on.
        fn resumed(&self) -> Log {
            self.session(Some(1), "10.0.3").unwrap()
        }
    }

    fn arms() -> Vec<ArmName> {
        ["one", "other"].map(|id| ArmName::new(id, id, Role::Other)).into()
    }

    fn round(number: u32) -> Round {
        let step = |arm| Step {
            purpose: Purpose::Pair,
            arm,
            count: 1,
            workload: FioJob::first_seed(Bytes::from_kib(4), 1, 1).into(),
            seed: u64::from(number) + 40,
        };
        Round { number, steps: vec![step(0), step(1)], fresh: Fresh::No, whole_or_nothing: false }
    }

    fn run(round: &Round, position: usize, seconds: f64) -> Run {
        let step = &round.steps[position];
        Run {
            round: round.number,
            position: position as u32,
            purpose: step.purpose,
            arm: arms()[step.arm].id.clone(),
            count: step.count,
            workload: step.workload.clone(),
            seed: step.seed,
            started: String::new(),
            seconds,
            outcome: Outcome::Measured { metrics: Vec::new(), notes: Vec::new() },
            together: None,
        }
    }

    /// Writes down whole rounds.
    fn make(log: &mut Log, rounds: &[Round]) {
        for round in rounds {
            (0..round.steps.len()).for_each(|position| log.add(&run(round, position, 1.0)).unwrap());
        }
    }

    #[test]
    fn only_the_same_step_is_gone_on_with_and_else_it_is_measured_anew() {
        let kept = Kept::new();
        make(&mut kept.session(None, "10.0.3").unwrap(), &[round(0), round(1)]);
        let refused = |change: &dyn Fn(&mut Step)| {
            let mut asked = round(0);
            change(&mut asked.steps[1]);
            let error = kept.resumed().recorded(&asked, &arms()).unwrap_err();
            assert!(matches!(error, MeasureError::Anew(_)), "{error}");
            let ran = format!("measurement 1 ran `other` with {} in round 0", round(0).steps[1].workload.label());
            assert_eq!(error.to_string(), format!("{ran}, where something else would run now: measure anew"));
        };
        refused(&|step: &mut Step| step.arm = 0);
        refused(&|step: &mut Step| step.seed += 1);
        refused(&|step: &mut Step| step.count = 2);
        refused(&|step: &mut Step| step.purpose = Purpose::SameArm);
        refused(&|step: &mut Step| step.workload = FioJob::first_seed(Bytes::from_kib(64), 1, 1).into());
        let of_round = |log: &mut Log, number| log.recorded(&round(number), &arms()).map(|runs| runs.len());
        let mut log = kept.resumed();
        assert_eq!((of_round(&mut log, 0).unwrap(), of_round(&mut log, 1).unwrap()), (2, 2));
        assert_eq!(of_round(&mut log, 2).unwrap(), 0, "it is new");
    }

    #[test]
    fn a_round_that_nobody_asks_for_any_more_is_not_passed_over() {
        let kept = Kept::new();
        make(&mut kept.session(None, "10.0.3").unwrap(), &[round(0), round(1)]);
        let mut log = kept.resumed();
        assert!(matches!(log.recorded(&round(1), &arms()), Err(MeasureError::Anew(_))), "the first is left out");
        let mut log = kept.resumed();
        assert_eq!(log.recorded(&round(0), &arms()).unwrap().len(), 2);
        // The first design is over, where it had one more round.
        log.next_phase();
        assert!(matches!(log.recorded(&round(0), &arms()), Err(MeasureError::Anew(_))));
    }

    #[test]
    fn nothing_of_a_round_that_is_made_again_is_found_beside_it() {
        let kept = Kept::new();
        let mut log = kept.session(None, "10.0.3").unwrap();
        make(&mut log, &[round(0)]);
        // Its first step was tried three times, say, and nothing came behind them.
        (0..3).for_each(|_| log.add(&run(&round(1), 0, 1.0)).unwrap());
        let mut log = kept.resumed();
        assert_eq!(log.recorded(&round(0), &arms()).unwrap().len(), 2);
        assert!(log.recorded(&round(1), &arms()).unwrap().is_empty(), "it is not whole");
        (0..2).for_each(|position| log.add(&run(&round(1), position, 2.0)).unwrap());
        let mut log = kept.resumed();
        assert_eq!(log.recorded(&round(0), &arms()).unwrap().len(), 2);
        let seconds: Vec<f64> = log.recorded(&round(1), &arms()).unwrap().iter().map(|run| run.seconds).collect();
        assert_eq!(seconds, [2.0, 2.0], "those of the second session alone");
    }

    #[test]
    fn figures_of_another_qemu_are_measured_anew() {
        let kept = Kept::new();
        kept.session(None, "10.0.3").unwrap();
        drop(kept.session(Some(1), "10.1.0").unwrap());
        make(&mut kept.session(Some(1), "10.1.0").unwrap(), &[round(0)]);
        let error = kept.session(Some(1), "10.0.3").unwrap_err();
        assert!(matches!(error, MeasureError::Anew(_)), "{error}");
        assert_eq!(
            error.to_string(),
            "measurement 1 began on QEMU 10.1.0, and this is 10.0.3: measure anew",
            "where there are no figures yet, any will do"
        );
    }

    #[test]
    fn the_times_of_the_first_session_that_worked_them_out_are_those_of_all() {
        let kept = Kept::new();
        let refused = || Err(MeasureError::Asked("raise --budget".to_owned()));
        let error = kept.session(None, "10.0.3").unwrap().times::<f64>(refused).unwrap_err();
        assert_eq!(error.to_string(), "raise --budget");
        for later in [12.5, 17.0] {
            assert_eq!(kept.resumed().times(|| Ok(later)).unwrap(), 12.5, "and not what did not suffice");
        }
        assert_eq!(kept.resumed().times::<f64>(|| panic!("it is known")).unwrap(), 12.5);
        let error = kept.resumed().times::<Vec<f64>>(|| Ok(Vec::new())).unwrap_err().to_string();
        assert!(error.contains("the times of measurement 1"), "{error}");
    }
}
