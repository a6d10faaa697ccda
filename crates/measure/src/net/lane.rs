//! The race and the fresh rounds of the network matrix.

use nearmetal_load::{NetTest, Unit, Workload};
use nearmetal_results::{
    ArmName, Ceiling, Effect, Link, Outcome, Purpose, Role, Run, Turn, last_tries, net_metric as named,
};
use nearmetal_stats::{Race, doubling_looks};

use super::request::{CEILING_RUNS, FIRST_LOOK, LOOKS};
use super::rig::NetRig;
use crate::engine::{Fresh, Pairs, Plan, Racing, Session, Subject, Tenant, carry_out, chain};
use crate::error::MeasureError;

/// Brings each arm up for the first time and reads it back. One that cannot be brought up does not take the others of its
/// guest with it: they are tried one by one.
pub(super) fn read_back_all(rig: &mut NetRig<'_>, session: &mut Session<'_>) -> Result<Vec<Effect>, MeasureError> {
    let all: Vec<usize> = (0..rig.cards.len()).collect();
    let mut effects: Vec<Option<Effect>> = vec![None; all.len()];
    for batch in rig.batches(&all) {
        session.goes_on()?;
        let bare = rig.cards[batch[0]].path.link == Link::Bare;
        let brought = if bare { rig.stand_bare(session) } else { rig.stand_guest(&batch, session).map(drop) };
        let alone = batch.len() > 1;
        for arm in batch {
            session.stage(&format!("reading back {} of {}: {}", arm + 1, all.len(), rig.title(arm)));
            effects[arm] = Some(match &brought {
                Ok(()) => rig.read_back(arm, session),
                Err(_) if alone => match rig.stand_guest(&[arm], session) {
                    Ok(_) => rig.read_back(arm, session),
                    Err(error) => Effect::NotShown { why: chain(&error) },
                },
                Err(error) => Effect::NotShown { why: chain(error) },
            });
        }
    }
    session.goes_on()?;
    let missing = || Effect::NotShown { why: "it was not brought up".to_owned() };
    Ok(effects.into_iter().map(|effect| effect.unwrap_or_else(missing)).collect())
}

/// The arms by name, and behind them bare metal without a slice.
fn names(rig: &NetRig<'_>) -> Vec<ArmName> {
    let role = |link: Link| if link == Link::Bare { Role::Bare } else { Role::Other };
    let one = |card: &super::guest::ArmCard| ArmName::new(&card.path.id(), &card.path.title(), role(card.path.link));
    let all_pus = ArmName::new("all-pus", "bare metal, all PUs", Role::Bare);
    rig.cards.iter().map(one).chain([all_pus]).collect()
}

/// Runs with their arms by place.
fn turns(runs: Vec<Run>, arms: &[ArmName]) -> Vec<Turn> {
    let place = |run: &Run| arms.iter().position(|arm| arm.id == run.arm);
    runs.into_iter().filter_map(|run| Some((place(&run)?, run))).map(|(arm, run)| with_test(run, arm)).collect()
}

/// A run of one test, whose name stands before what every load has.
fn with_test(mut run: Run, arm: usize) -> Turn {
    if let (Workload::Net(job), Outcome::Measured { metrics, .. }) = (&run.workload, &mut run.outcome) {
        *metrics = std::mem::take(metrics).into_iter().map(|metric| named(job.test, metric)).collect();
    }
    Turn::whole(run, arm)
}

/// Bare metal, on all PUs and, where it is an arm, on the slice, in turn: no arm can be shown to do more.
pub(super) fn ceiling(rig: &mut NetRig<'_>, session: &mut Session<'_>) -> Result<Vec<Ceiling>, MeasureError> {
    rig.stand_bare(session)?;
    if let Effect::NotShown { why } = rig.read_back(0, session) {
        return Err(MeasureError::Unfit(format!(
            "{} is out of reach from {}: {why}. Does netserver run there?",
            rig.request.peer, rig.request.port
        )));
    }
    let arms = names(rig);
    let all_pus = arms.len() - 1;
    let slice = rig.cards.iter().position(|card| card.path.link == Link::Bare);
    let sides: Vec<usize> = std::iter::once(all_pus).chain(slice).collect();
    let workloads: Vec<Workload> = rig.request.tests.iter().map(|test| rig.request.job(*test)).collect();
    let mut design = Pairs::new(Plan {
        counts: vec![1],
        ceiling: None,
        whole_or_nothing: false,
        arms: arms.clone(),
        paired: Vec::new(),
        rounds: 0,
        resolve: None,
        same_arm: Vec::new(),
        same_arm_pairs: 0,
        single_shot: (0..CEILING_RUNS)
            .flat_map(|_| workloads.iter().map(|workload| (workload.clone(), sides.clone())))
            .collect(),
        fresh: Fresh::No,
        reasons: false,
        accesses: 0,
        offers: false,
        accesses_in: Vec::new(),
        seed: rig.request.conditions.seed,
    });
    let runs = carried_out(&mut design, rig, &arms, session)?;
    let rates = |test: NetTest, arm: usize| -> Vec<f64> {
        let of = runs.iter().filter(|run| run.arm == arms[arm].id && run.workload.id() == test.id());
        of.filter_map(|run| run.value(&test.rate())).map(|metric| metric.value).collect()
    };
    let one = |test: &NetTest| {
        let unit = if test.is_stream() { Unit::BitsPerSecond } else { Unit::TransactionsPerSecond };
        let (unconfined, confined) = (rates(*test, all_pus), slice.map(|arm| rates(*test, arm)).unwrap_or_default());
        if !unconfined.is_empty() || !confined.is_empty() {
            return Ok(Ceiling { test: *test, unit, unconfined, confined });
        }
        // One that fails now and then is the machine's noise; one that never ends well is no test of this peer.
        let why = runs.iter().filter(|run| run.workload.id() == test.id()).find_map(Run::failure);
        Err(MeasureError::Unfit(format!("{}: {}", test.label(), why.unwrap_or("it was not run"))))
    };
    rig.request.tests.iter().map(one).collect()
}

fn carried_out(
    design: &mut dyn crate::engine::Design,
    rig: &mut NetRig<'_>,
    arms: &[ArmName],
    session: &mut Session<'_>,
) -> Result<Vec<Run>, MeasureError> {
    let tenants = vec![Tenant::new(&rig.request.guest, rig.slice.clone())];
    let mut subject = Subject { arms: arms.to_vec(), tenants, path: rig, least_overlap: 0.0 };
    carry_out(design, &mut subject, session)
}

/// The race among the arms that took effect, all against `reference`, for `seconds`.
pub(super) fn race(
    rig: &mut NetRig<'_>,
    running: &[usize],
    can_win: &[bool],
    reference: usize,
    seconds: f64,
    session: &mut Session<'_>,
) -> Result<(Race, Vec<Turn>), MeasureError> {
    let (error, seed, workload) =
        (rig.request.error, rig.request.conditions.seed, rig.request.job(rig.request.decided_by()));
    let reference = running.iter().position(|arm| *arm == reference).unwrap_or(0);
    let race = Race::new(can_win, reference, error, &doubling_looks(FIRST_LOOK, LOOKS))?;
    let arms = names(rig);
    rig.running = running.to_vec();
    let ids = running.iter().map(|arm| (*arm, arms[*arm].id.clone())).collect();
    let mut racing = Racing::new(race, ids, workload, seconds, seed);
    let runs = carried_out(&mut racing, rig, &arms, session)?;
    Ok((racing.race().clone(), turns(runs, &arms)))
}

/// Fresh rounds of the winner, the reference and bare metal: every guest is booted for its run and has one card.
pub(super) fn confirm(
    rig: &mut NetRig<'_>,
    arms: &[usize],
    session: &mut Session<'_>,
) -> Result<Vec<Turn>, MeasureError> {
    let names = names(rig);
    rig.alone = true;
    let workloads: Vec<Workload> = rig.request.tests.iter().map(|test| rig.request.job(*test)).collect();
    let seed = rig.request.conditions.seed.wrapping_add(1);
    let mut design = Rounds::new(arms, &workloads, rig.request.pairs, seed);
    let runs = carried_out(&mut design, rig, &names, session)?;
    rig.clear(session)?;
    Ok(of_boots(&runs, &names))
}

/// Rounds in which every arm has all tests, booted for them.
struct Rounds(std::collections::VecDeque<crate::engine::Round>);

impl Rounds {
    fn new(arms: &[usize], workloads: &[Workload], rounds: u32, seed: u64) -> Self {
        let mut random = crate::engine::SplitMix::new(seed);
        let one = |number| {
            let mut order = arms.to_vec();
            random.shuffle(&mut order);
            let seed = random.load_seed();
            let step = |arm: usize, workload: &Workload| crate::engine::Step {
                purpose: Purpose::Pair,
                arm,
                count: 1,
                workload: workload.clone(),
                seed,
            };
            let steps = order.into_iter().flat_map(|arm| workloads.iter().map(move |workload| step(arm, workload)));
            crate::engine::Round { number, steps: steps.collect(), fresh: Fresh::Arm, whole_or_nothing: false }
        };
        Self((0..rounds).map(one).collect())
    }
}

impl crate::engine::Design for Rounds {
    fn next(
        &mut self,
        _: &[Run],
        _: &mut dyn FnMut(&mut Vec<usize>, &mut crate::engine::SplitMix),
    ) -> Result<Option<crate::engine::Round>, MeasureError> {
        Ok(self.0.pop_front())
    }

    fn total(&self) -> usize {
        self.0.iter().map(|round| round.steps.len()).sum()
    }
}

/// The tests of each boot as one turn, without what another try made good: a failure of one test is one of all tests of its boot.
fn of_boots(runs: &[Run], arms: &[ArmName]) -> Vec<Turn> {
    let last = last_tries(runs.iter(), Run::step).into_iter().cloned().collect();
    joined(turns(last, arms))
}

/// The tests of one boot as one turn, as the document keeps them.
fn joined(turns: Vec<Turn>) -> Vec<Turn> {
    let mut joined: Vec<Turn> = Vec::new();
    for turn in turns {
        match joined.last_mut().filter(|last| (last.round, last.arm) == (turn.round, turn.arm)) {
            Some(last) => last.join(turn),
            None => joined.push(turn),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use nearmetal_results::Outcome;

    use super::*;

    #[test]
    fn a_test_that_was_taken_again_costs_its_boot_nothing() {
        let run = |position: u32, fails: bool| {
            let mut run = nearmetal_results::samples::sample_results().runs.remove(0);
            run.position = position;
            if fails {
                run.outcome = Outcome::Failed { why: "a neighbour".into() };
            }
            run
        };
        let failed = |runs: &[Run]| -> Vec<bool> {
            let turns = of_boots(runs, &[ArmName::bare_slice()]);
            turns.iter().map(|turn| turn.outcome.failure().is_some()).collect()
        };
        assert_eq!(failed(&[run(0, true), run(0, false), run(1, false)]), [false]);
        assert_eq!(failed(&[run(0, false), run(1, true), run(1, true)]), [true], "nothing came after the last try");
    }
}
