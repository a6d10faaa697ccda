//! Rounds of runs, carried out one after the other: the one loop of every experiment.

use std::time::Instant;

use super::sample::Subject;
use super::{Session, SplitMix};
use crate::error::MeasureError;
use crate::event::Event;
use crate::load::Workload;
use crate::results::{Outcome, Purpose, Run};

/// After how many failures in a row the experiment is given up: by then it is not a disturbance.
pub(crate) const GIVE_UP_AFTER: u32 = 4;

/// How often a step is tried. One disturbance, such as a guest whose agent was not back in time, is no verdict on its arm.
const TRIES: u32 = 2;

/// One run to make.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// Why.
    pub purpose: Purpose,
    /// Place of the arm in the subject's list.
    pub arm: usize,
    /// How many tenants run at once: the first ones.
    pub count: usize,
    /// Load.
    pub workload: Workload,
    /// Seed of the load.
    pub seed: u64,
}

/// Runs that belong together, in the order they run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Round {
    /// Number, from 0 over the whole experiment.
    pub number: u32,
    /// Steps; those of one arm follow each other.
    pub steps: Vec<Step>,
    /// Which guests are booted afresh.
    pub fresh: Fresh,
    /// If a step fails, and once more when it is tried again, the rest of the round is left out: alone it would be no pair.
    pub whole_or_nothing: bool,
}

/// Which guests are booted afresh for a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fresh {
    /// None.
    #[default]
    No,
    /// Those of all its arms, before its first step.
    Round,
    /// Each arm's before its first step.
    Arm,
}

/// What runs next, and for how long: a pure function of its parameters and the runs so far, so that an experiment that was
/// interrupted goes on with the same order.
pub(crate) trait Design {
    /// The next round after these runs; `None`: it is over. Asked again after each round.
    ///
    /// # Errors
    /// The runs allow no decision.
    fn next(
        &mut self,
        runs: &[Run],
        arms: &mut dyn FnMut(&mut Vec<usize>, &mut SplitMix),
    ) -> Result<Option<Round>, MeasureError>;

    /// Runs in all, as far as it knows them.
    fn total(&self) -> usize;

    /// What is to be said of it in the document, once it is over.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Carries out a design: every run is kept, written down as it ends and told of before it begins. A run that failed
/// keeps its reason, and its step is tried once more; then the design goes on. Four failures in a row end it. A guest that
/// stopped answering is started again first.
///
/// # Errors
/// Four failures in a row, or the machine cannot be made ready for a round.
pub(crate) fn carry_out(
    design: &mut dyn Design,
    subject: &mut Subject<'_>,
    session: &mut Session<'_>,
) -> Result<Vec<Run>, MeasureError> {
    session.next_phase();
    let mut runs: Vec<Run> = Vec::new();
    let mut failures = 0;
    loop {
        let path = &*subject.path;
        let last = runs.last().and_then(|run: &Run| subject.arms.iter().position(|arm| arm.id == run.arm));
        let Some(round) = design.next(&runs, &mut |arms, random| path.arrange(arms, last, random))? else { break };
        let recorded = session.recorded(&round, &subject.arms);
        if !recorded.is_empty() {
            runs.extend(recorded);
            continue;
        }
        if round.fresh == Fresh::Round {
            let mut arms: Vec<usize> = round.steps.iter().map(|step| step.arm).collect();
            arms.sort_unstable();
            arms.dedup();
            subject.path.refresh(&arms, session)?;
        }
        let mut before = None;
        for (position, step) in round.steps.iter().enumerate() {
            if round.fresh == Fresh::Arm && before != Some(step.arm) {
                subject.path.refresh(&[step.arm], session)?;
            }
            before = Some(step.arm);
            let mut is_good = false;
            for attempt in 1..=TRIES {
                let run = run_of(subject, session, &round, position, step, (runs.len(), design.total()))?;
                is_good = run.failure().is_none();
                // One whose tenants ran, and not side by side, is no failure of the machine.
                let ran = is_good || run.together.as_ref().is_some_and(|together| !together.parts.is_empty());
                // A step that stands alone is one failure, however often it is tried: others need not share its fault.
                let counts = round.whole_or_nothing || attempt == TRIES;
                failures = if ran { 0 } else { failures + u32::from(counts) };
                let why = run.failure().map(str::to_owned);
                session.keep(&run)?;
                runs.push(run);
                if let (Some(why), true) = (why, failures >= GIVE_UP_AFTER) {
                    return Err(MeasureError::Unfit(format!("{GIVE_UP_AFTER} runs in a row failed, the last: {why}")));
                }
                if is_good {
                    break;
                }
            }
            if round.whole_or_nothing && !is_good {
                break;
            }
        }
    }
    session.notes.extend(design.notes());
    Ok(runs)
}

/// One run. A guest that is found dead after a failure is started again, and the run repeated.
fn run_of(
    subject: &mut Subject<'_>,
    session: &mut Session<'_>,
    round: &Round,
    position: usize,
    step: &Step,
    (done, total): (usize, usize),
) -> Result<Run, MeasureError> {
    let arm = subject.arms[step.arm].clone();
    session.tell(Event::Run { done, total, round: round.number, arm: &arm.title, load: &step.workload.label() });
    let (started, clock) = (nearmetal_change::timestamp::now(), Instant::now());
    let mut sampled = subject.sample(step, session);
    if sampled.is_err() && subject.revive(step, session)? {
        sampled = subject.sample(step, session);
    }
    let (outcome, together) = match sampled {
        Ok(sample) => {
            let outcome = match sample.thrown_away {
                Some(why) => Outcome::Failed { why },
                None => Outcome::Measured { metrics: sample.metrics, notes: sample.notes },
            };
            (outcome, sample.together)
        }
        Err(error) => (Outcome::Failed { why: chain(&error) }, None),
    };
    Ok(Run {
        round: round.number,
        position: position as u32,
        purpose: step.purpose,
        arm: arm.id,
        count: step.count,
        workload: step.workload.clone(),
        seed: step.seed,
        started,
        seconds: clock.elapsed().as_secs_f64(),
        outcome,
        together,
    })
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
