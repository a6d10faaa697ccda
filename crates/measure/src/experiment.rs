//! Carrying out a schedule. Knows only the [`Executor`]; what a run is made of is the executor's.

use std::time::Instant;

use crate::error::MeasureError;
use crate::metric::Metric;
use crate::results::{ArmKind, Outcome, Run};
use crate::schedule::Step;

/// What a finished run gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// Values.
    pub metrics: Vec<Metric>,
    /// What the workload said of itself.
    pub notes: Vec<String>,
}

/// Runs workloads in arms.
pub trait Executor {
    /// Runs one step. All other arms are paused meanwhile.
    fn run(&mut self, step: &Step) -> Result<Measured, MeasureError>;

    /// Boots the guest arms afresh; called before each round unless guests stay up.
    fn refresh(&mut self, arms: &[ArmKind]) -> Result<(), MeasureError>;
}

/// After how many failures in a row the experiment is given up: by then it is not a disturbance.
pub(crate) const GIVE_UP_AFTER: u32 = 4;

/// Carries out `steps`, in order. A failed run is kept with its reason and the schedule goes on; four in a row end it.
///
/// `fresh`: guests are booted afresh before each round. `progress` is told of each step before it starts.
pub fn perform(
    steps: &[Step],
    fresh: bool,
    executor: &mut dyn Executor,
    progress: &mut dyn FnMut(usize, &Step),
) -> Result<Vec<Run>, MeasureError> {
    let mut runs = Vec::with_capacity(steps.len());
    let mut failures = 0;
    for (index, step) in steps.iter().enumerate() {
        progress(index, step);
        if fresh && step.position == 0 {
            let mut arms: Vec<ArmKind> =
                steps.iter().filter(|other| other.round == step.round).map(|other| other.arm).collect();
            arms.sort();
            arms.dedup();
            executor.refresh(&arms)?;
        }
        let started = nearmetal_change::timestamp::now();
        let clock = Instant::now();
        let result = executor.run(step);
        let outcome = match result {
            Ok(Measured { metrics, notes }) => {
                failures = 0;
                Outcome::Measured { metrics, notes }
            }
            Err(error) => {
                failures += 1;
                if failures >= GIVE_UP_AFTER {
                    return Err(error);
                }
                Outcome::Failed { why: chain(&error) }
            }
        };
        runs.push(Run {
            round: step.round,
            position: step.position,
            purpose: step.purpose,
            arm: step.arm,
            workload: step.workload.clone(),
            seed: step.seed,
            started,
            seconds: clock.elapsed().as_secs_f64(),
            outcome,
        });
    }
    Ok(runs)
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Purpose;
    use crate::workload::{FioJob, Workload};
    use nearmetal_units::Bytes;

    struct Scripted {
        answers: Vec<bool>,
        refreshed: Vec<Vec<ArmKind>>,
    }

    impl Executor for Scripted {
        fn run(&mut self, _: &Step) -> Result<Measured, MeasureError> {
            if self.answers.remove(0) { Ok(Measured::default()) } else { Err(MeasureError::Unfit("no".into())) }
        }
        fn refresh(&mut self, arms: &[ArmKind]) -> Result<(), MeasureError> {
            self.refreshed.push(arms.to_vec());
            Ok(())
        }
    }

    fn steps(count: u32) -> Vec<Step> {
        (0..count)
            .map(|index| Step {
                round: index / 2,
                position: index % 2,
                purpose: Purpose::Pair,
                arm: if index % 2 == 0 { ArmKind::Planned } else { ArmKind::BareSlice },
                workload: Workload::Fio(FioJob::first_seed(Bytes::from_kib(4), 1, 0)),
                seed: 1,
            })
            .collect()
    }

    #[test]
    fn one_failure_is_kept_and_four_in_a_row_end_it() {
        let mut executor = Scripted { answers: vec![true, false, true, true], refreshed: vec![] };
        let runs = perform(&steps(4), false, &mut executor, &mut |_, _| {}).unwrap();
        assert_eq!(runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed { .. })).count(), 1);
        let mut executor = Scripted { answers: vec![true, false, false, false, false, true], refreshed: vec![] };
        assert!(perform(&steps(6), false, &mut executor, &mut |_, _| {}).is_err());
    }

    #[test]
    fn fresh_guests_are_booted_once_a_round() {
        let mut executor = Scripted { answers: vec![true; 4], refreshed: vec![] };
        perform(&steps(4), true, &mut executor, &mut |_, _| {}).unwrap();
        assert_eq!(executor.refreshed, vec![vec![ArmKind::BareSlice, ArmKind::Planned]; 2]);
    }
}
