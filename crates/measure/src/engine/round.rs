//! Rounds of runs, carried out one after the other: the one loop of every experiment.

use std::time::Instant;

use nearmetal_load::Workload;
use nearmetal_results::{Outcome, Purpose, Run};

use super::sample::{SLOWED, Sample, Subject};
use super::session::failed;
use super::{Session, SplitMix};
use crate::error::MeasureError;
use crate::event::Event;

/// After how many failures in a row the experiment is given up: by then it is not a disturbance.
pub(crate) const GIVE_UP_AFTER: u32 = 4;

/// How often a step is tried. One disturbance, such as a guest whose agent was not back in time, is no verdict on its arm.
const TRIES: u32 = 2;

/// What the note of a run begins with on whose PUs something else ran.
const BESIDE: &str = "something else ran on its PUs: ";

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
/// keeps its reason, and its step is tried once more; then the design goes on. Four failures in a row end it, except where
/// arms are filled: there the design takes an arm without figures for a full one, and only a machine on which nothing ran in
/// any arm ends it. A guest that stopped answering is started again first.
///
/// # Errors
/// Four failures in a row, nothing that ran at all, or the machine cannot be made ready for a round.
pub(crate) fn carry_out(
    design: &mut dyn Design,
    subject: &mut Subject<'_>,
    session: &mut Session<'_>,
) -> Result<Vec<Run>, MeasureError> {
    session.next_phase();
    let mut runs: Vec<Run> = Vec::new();
    let mut failures = 0;
    let mut any_ran = false;
    loop {
        let path = &*subject.path;
        let last = runs.last().and_then(|run: &Run| subject.arms.iter().position(|arm| arm.id == run.arm));
        let Some(round) = design.next(&runs, &mut |arms, random| path.arrange(arms, last, random))? else { break };
        let recorded = session.recorded(&round, &subject.arms)?;
        if !recorded.is_empty() {
            any_ran |= recorded.iter().any(|run| run.failure().is_none());
            runs.extend(recorded);
            continue;
        }
        let fills = round.steps.iter().any(|step| step.purpose == Purpose::Fill);
        if fills {
            // Each arm with so many tiles is judged alone.
            failures = 0;
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
                session.goes_on()?;
                let is_last = attempt == TRIES;
                let (run, ran) =
                    run_of(subject, session, &round, (position, step), (runs.len(), design.total()), is_last)?;
                is_good = run.failure().is_none();
                // A step that stands alone is one failure, however often it is tried: others need not share its fault.
                let counts = round.whole_or_nothing || is_last;
                failures = if ran { 0 } else { failures + u32::from(counts) };
                any_ran |= ran;
                let why = run.failure().map(str::to_owned);
                session.keep(&run)?;
                runs.push(run);
                let may_end = !fills || (!any_ran && were_all_tried(&runs, subject));
                if let (Some(why), true) = (why, may_end && failures >= GIVE_UP_AFTER) {
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
        if fills && failures > 0 {
            // Without libvirt every arm would seem full, and the measurement over.
            session.hypervisor.domains().map_err(failed("all guests"))?;
        }
    }
    if let Some(last) = runs.last().filter(|run| run.purpose == Purpose::Fill && !any_ran) {
        let why = last.failure().unwrap_or_default();
        return Err(MeasureError::Unfit(format!("all {} runs failed, the last: {why}", runs.len())));
    }
    session.notes.extend(design.notes());
    session.notes.extend(words_of_neighbours(&runs));
    Ok(runs)
}

/// Whether each arm has had a run.
fn were_all_tried(runs: &[Run], subject: &Subject<'_>) -> bool {
    subject.arms.iter().all(|arm| runs.iter().any(|run| run.arm == arm.id))
}

/// What is to be said of the samples that count though others ran on their PUs.
fn words_of_neighbours(runs: &[Run]) -> Option<String> {
    let mut of = runs.iter().filter_map(|run| run.notes().iter().find_map(|note| note.strip_prefix(BESIDE)));
    let first = of.next()?;
    Some(format!(
        "something else ran on the PUs of {} of {} samples, each time they were tried, and they count; the first: {first}. Stop \
         it or keep it off these PUs, and measure again",
        1 + of.count(),
        runs.len()
    ))
}

/// One run, and whether it ran: one that does not count for what others did meanwhile is no failure of the machine. A guest
/// that is found dead after a failure is started again, and the run repeated.
fn run_of(
    subject: &mut Subject<'_>,
    session: &mut Session<'_>,
    round: &Round,
    (position, step): (usize, &Step),
    (done, total): (usize, usize),
    is_last_try: bool,
) -> Result<(Run, bool), MeasureError> {
    let arm = subject.arms[step.arm].clone();
    session.tell(Event::Run { done, total, round: round.number, arm: &arm.title, load: &step.workload.label() });
    let (started, clock) = (nearmetal_change::timestamp::now(), Instant::now());
    // Accesses are counted at a quarter of the speed, and a slow machine may have been done before its counters were read: the
    // second time there are as many times the seconds, and the first time too where a program still fills its memory when another
    // would work. Nobody reads a time from such a sample.
    let times = SLOWED.pow(u32::from(is_last_try) + u32::from(step.workload.fills_first()));
    let longer = step.workload.longer(times).filter(|_| times > 1 && step.purpose == Purpose::Accesses);
    let longer = longer.map(|workload| Step { workload, ..step.clone() });
    let tried = longer.as_ref().unwrap_or(step);
    let mut sampled = subject.sample(tried, session);
    // What fails because somebody asks for the end is no failure of the arm.
    if sampled.is_err() {
        session.goes_on()?;
        if let Err(MeasureError::Ends(why)) = sampled {
            return Err(MeasureError::Ends(why));
        }
        if subject.revive(tried, session)? {
            sampled = subject.sample(tried, session);
        }
    }
    if sampled.is_err() {
        session.goes_on()?;
    }
    if let Err(MeasureError::Ends(why)) = sampled {
        return Err(MeasureError::Ends(why));
    }
    let ran = sampled.is_ok();
    let (outcome, together) = match sampled {
        Ok(mut sample) => (outcome(&mut sample, is_last_try), sample.together),
        Err(error) => (Outcome::Failed { why: chain(&error) }, None),
    };
    let run = Run {
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
    };
    Ok((run, ran))
}

/// What a sample that ran is worth. One beside neighbours is thrown away and repeated; if they are there again, it is kept
/// and marked: they are part of this machine.
fn outcome(sample: &mut Sample, is_last_try: bool) -> Outcome {
    let beside = sample.neighbours.take().map(|who| format!("{BESIDE}{who}"));
    let repeated = beside.clone().filter(|_| !is_last_try);
    match sample.thrown_away.take().or(repeated) {
        Some(why) => Outcome::Failed { why },
        None => {
            sample.notes.extend(beside);
            Outcome::Measured { metrics: std::mem::take(&mut sample.metrics), notes: std::mem::take(&mut sample.notes) }
        }
    }
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

    fn sample(neighbours: Option<&str>) -> Sample {
        let notes = vec!["a note".to_owned()];
        let neighbours = neighbours.map(str::to_owned);
        Sample { metrics: Vec::new(), notes, together: None, thrown_away: None, neighbours }
    }

    #[test]
    fn a_sample_beside_a_neighbour_is_repeated_and_then_kept_with_a_mark() {
        let who = "`stress` ran";
        let why = "something else ran on its PUs: `stress` ran".to_owned();
        assert_eq!(outcome(&mut sample(Some(who)), false), Outcome::Failed { why: why.clone() });
        let notes = vec!["a note".to_owned(), why];
        assert_eq!(outcome(&mut sample(Some(who)), true), Outcome::Measured { metrics: Vec::new(), notes });
        let alone = Outcome::Measured { metrics: Vec::new(), notes: vec!["a note".to_owned()] };
        assert_eq!(outcome(&mut sample(None), false), alone);
        let mut apart = sample(Some(who));
        apart.thrown_away = Some("not at once".to_owned());
        assert_eq!(outcome(&mut apart, true), Outcome::Failed { why: "not at once".to_owned() });
    }

    #[test]
    fn what_counts_beside_a_neighbour_is_said_once_for_all() {
        let run = |neighbours, is_last_try| Run {
            round: 0,
            position: 0,
            purpose: Purpose::Pair,
            arm: "planned".into(),
            count: 1,
            workload: nearmetal_load::FioJob::first_seed(nearmetal_units::Bytes::from_kib(4), 1, 1).into(),
            seed: 1,
            started: String::new(),
            seconds: 1.0,
            outcome: outcome(&mut sample(neighbours), is_last_try),
            together: None,
        };
        let thrown_away = run(Some("`dd` ran"), false);
        assert_eq!(words_of_neighbours(&[thrown_away.clone(), run(None, true)]), None, "it was made good");
        let kept = run(Some("`dd` ran"), true);
        let words = words_of_neighbours(&[thrown_away, kept.clone(), kept]).unwrap();
        assert!(words.starts_with("something else ran on the PUs of 2 of 3 samples"), "{words}");
        assert!(words.contains("the first: `dd` ran."), "{words}");
    }
}
