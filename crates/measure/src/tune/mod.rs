//! The closed loop: the plans that are possible for a guest race each other, the best is measured again in fresh pairs against
//! the guest as found, as planned by rule and its bare slice, and `plan` uses it from then on. All within a stated time.
//!
//! What races are whole plans, each composed by the planner itself: a winner is then a plan that can be applied as it is, and
//! settings that only help together are seen together. The guest as found runs in every round to the end; that it stays as it is
//! can win.

mod outcome;
mod request;
mod within;

#[cfg(test)]
mod tests;

use nearmetal_load::Workload;
use nearmetal_results::{Arm, ArmName, Purpose, Results, Role, Run, Slice};
use nearmetal_stats::{Race, doubling_looks};
use serde::{Deserialize, Serialize};

pub use self::request::{TuneArm, TuneOn, TuneRequest, least_seconds as least_tune_seconds};
pub(crate) use self::within::Within;

use crate::clones::as_virt_install;
use crate::conditions::Conditions;
use crate::engine::{Fresh, Pairs, Path, Plan, Racing, Session, Tenant};
use crate::error::MeasureError;
use crate::finish::{Experiment, Request, lab_caveat};
use crate::itself::Itself;
use crate::pairing::Pairing;
use crate::stand::{Stand, Up, Way};

/// Rounds before the first look: with fewer, nothing can be shown worse.
pub(crate) const FIRST_LOOK: u32 = 3;
/// Looks: after 3, 6, 12 and 24 rounds.
pub const TUNE_LOOKS: u32 = 4;
/// Rounds of the first rung as they must fit: the last one with its margin.
pub(crate) const FIRST_RUNG: f64 = FIRST_LOOK as f64 - 1.0 + MARGIN;
/// Fresh rounds without which a winner is not confirmed.
pub(crate) const LEAST_PAIRS: u32 = 4;
/// The part of the time after the set-up that is kept for the fresh rounds at least.
const KEPT: f64 = 0.3;
/// What a sample may take more than was estimated.
pub(crate) const MARGIN: f64 = 1.25;
/// Seconds kept for putting everything back and writing the document.
const PUTTING_BACK: f64 = 10.0;

/// Places of the arms that are always there; virt-install's is between the last two, and the plans follow that by rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    /// The bare slice, if there is one.
    bare: Option<usize>,
    /// The guest as found.
    found: usize,
    /// As planned by rule.
    rule: usize,
}

impl Places {
    fn of(on: &TuneOn) -> Self {
        match on {
            TuneOn::Scratch(_) => Self { bare: Some(0), found: 1, rule: 3 },
            TuneOn::Itself { .. } => Self { bare: None, found: 0, rule: 2 },
        }
    }
}

/// Arms that were all started and read back, and how to get to them.
struct Ready {
    arms: Vec<Arm>,
    slice: Slice,
    caveats: Vec<String>,
    workload: Workload,
    /// Seconds of a sample, beside the boot of its guest.
    sample: f64,
    /// Seconds of the set-up that were no boots.
    beside_boots: f64,
    path: Box<dyn Path>,
}

/// What a tune has worked out for its time, in seconds. One that goes on has that of its first session.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Times {
    /// For the race and the fresh pairs.
    left: f64,
    /// Of these, for the race.
    for_the_race: f64,
    /// For a sample in a guest, its boot included, as long as none was made.
    guest: f64,
}

impl Request for TuneRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.on.guest().to_owned()]
    }

    fn check(&self) -> Result<(), MeasureError> {
        self.possible()
    }

    fn winner(results: &Results) -> Option<&str> {
        results.tune.as_ref().map(|tuning| tuning.verdict.arm())
    }

    /// Tunes the guest and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// The guest runs and may not be paused, the scratch device cannot be used, a clone does not come up, the time does not
    /// suffice, or four runs in a row failed.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        measure(self, session)
    }
}

fn measure(request: &TuneRequest, session: &mut Session<'_>) -> Result<Results, MeasureError> {
    let began = session.hypervisor.now();
    let places = Places::of(&request.on);
    let pairing = request.on.pairing();
    let mut ready = ready(request, &pairing, session)?;
    let (workload, sample) = (ready.workload.clone(), ready.sample);
    let set_up = session.hypervisor.now().duration_since(began).as_secs_f64();
    let names: Vec<ArmName> = ready.arms.iter().map(|arm| arm.name.clone()).collect();
    let guests = names.len() - places.found;
    let boot = (set_up - ready.beside_boots) / guests as f64;
    let Times { left, for_the_race, guest } = session.times(|| times(request, guests, boot, sample, set_up))?;

    let mut experiment = Experiment {
        experiment: "tune",
        quick: pairing.quick,
        arms: ready.arms,
        tenants: vec![Tenant::new(request.on.guest(), ready.slice)],
        least_overlap: None,
        caveats: ready.caveats,
        workloads: vec![workload.clone()],
        facts: Vec::new(),
        path: ready.path.as_mut(),
    };
    let ids: Vec<String> = names.iter().map(|name| name.id.clone()).collect();
    let estimates = |arm: usize| if Some(arm) == places.bare { sample } else { guest };
    let running: Vec<(usize, String)> = (places.found..ids.len()).map(|place| (place, ids[place].clone())).collect();
    // As found and virt-install are no plans: they are measured, and whether to leave the guest as it is, fresh pairs decide.
    let can_win: Vec<bool> = running.iter().map(|(place, _)| *place >= places.rule).collect();
    let race = Race::new(&can_win, 0, request.error, &doubling_looks(FIRST_LOOK, request.looks))?;
    session.stage("racing the plans");
    let racing = Racing::new(race, running, workload.clone(), for_the_race, session.conditions.seed);
    let mut racing = Within::new(racing, ids.clone(), for_the_race, (0..ids.len()).map(estimates).collect());
    let mut runs = experiment.runs(&mut racing, session)?;
    let costs = racing.costs();
    let racing = racing.into_design();
    let leader = racing.race().leader().map(|leader| leader + places.found).ok_or_else(|| {
        MeasureError::Unfit("no plan could be measured: the samples of all of them failed".to_owned())
    })?;

    let raced: f64 = runs.iter().map(|run| run.seconds).sum();
    // What the race did not use belongs to the fresh pairs.
    let for_pairs = left - raced;
    let arms = confirmed(places, leader);
    let round: f64 = arms.iter().map(|arm| costs[*arm]).sum::<f64>() * MARGIN;
    let affordable = (for_pairs / round).floor().clamp(0.0, f64::from(pairing.rounds)) as u32;
    if affordable < LEAST_PAIRS {
        session.note(format!(
            "there was time for {affordable} fresh rounds, and {LEAST_PAIRS} were to be made at least: samples took longer than the boots at \
             the beginning promised; raise --budget"
        ));
    }
    name_roles(&mut experiment.arms, leader);
    session.stage("measuring the winner again");
    let design =
        Again { arms: arms.clone(), pairs: pairs(&arms, &names, &workload, affordable, session.conditions.seed) };
    let mut design = Within::new(design, ids.clone(), for_pairs, costs);
    runs.extend(experiment.runs(&mut design, session)?);

    let arms: Vec<(String, Option<Vec<bool>>)> = (places.found..ids.len())
        .map(|place| {
            (ids[place].clone(), place.checked_sub(places.rule).and_then(|plan| request.arms[plan].levels.clone()))
        })
        .collect();
    let took = session.hypervisor.now().duration_since(began).as_secs_f64();
    let mut results = experiment.document(runs, session)?;
    results.tune = Some(Box::new(outcome::tuning(request, &results, racing.race(), &arms, &ids[leader], took)?));
    Ok(results)
}

/// What the set-up of so many guests leaves of the budget, where a boot and a sample take so long; all in seconds.
///
/// # Errors
/// It does not suffice.
fn times(request: &TuneRequest, guests: usize, boot: f64, sample: f64, set_up: f64) -> Result<Times, MeasureError> {
    let has_bare_metal = Places::of(&request.on).bare.is_some();
    let guest = boot + sample;
    let bare = if has_bare_metal { sample } else { 0.0 };
    let pairs_at_least = f64::from(LEAST_PAIRS) * (3.0 * guest + bare) * MARGIN;
    // A guest of its own is shut down and started once more.
    let putting_back = PUTTING_BACK + if has_bare_metal { 0.0 } else { boot };
    let left = f64::from(request.budget) - set_up - putting_back;
    let for_the_race = left - pairs_at_least.max(left * KEPT);
    let first_rung = FIRST_RUNG * guests as f64 * guest;
    if for_the_race < first_rung {
        let least = (first_rung + pairs_at_least).max(first_rung / (1.0 - KEPT)) + set_up + putting_back;
        return Err(MeasureError::Asked(format!(
            "{guests} arms, {FIRST_LOOK} rounds each, and the winner again take about {least:.0} s here (a boot takes {boot:.0} s, a sample {sample:.0} s), \
             and the budget is {} s: raise --budget, or leave factors out (--without)",
            request.budget
        )));
    }
    Ok(Times { left, for_the_race, guest })
}

/// Starts every arm once.
fn ready(request: &TuneRequest, pairing: &Pairing, session: &mut Session<'_>) -> Result<Ready, MeasureError> {
    let ways = ways(request)?;
    match &request.on {
        TuneOn::Scratch(on) => {
            let stand = Stand::set_up(ways, Up::One, on, session)?;
            let workload = stand.usable(pairing, session)?.paired.into_iter().next();
            let nothing = || MeasureError::Asked("there is no load to tune under: name one".to_owned());
            let workload = workload.ok_or_else(nothing)?;
            let length = workload.load().reckoned().as_secs_f64();
            Ok(Ready {
                arms: stand.arms.clone(),
                slice: stand.slice.clone(),
                caveats: stand.caveats(pairing.quick, "tune", session),
                workload,
                sample: length + request::BESIDE_A_SAMPLE,
                // Of the set-up beside writing the regions, booting is nearly all.
                beside_boots: stand.writing.as_secs_f64(),
                path: Box::new(stand),
            })
        }
        TuneOn::Itself { guest, placement, command, .. } => {
            let found = (guest.as_str(), request.on.xml_found());
            let itself = Itself::set_up(&ways, found, placement, command, session)?;
            let length = itself.tried.as_secs_f64();
            let lab = lab_caveat(&session.conditions.environment);
            let restarted = format!(
                "measured in `{guest}` itself, which was shut down and started for each sample; no bare metal runs its command, so none is compared"
            );
            Ok(Ready {
                arms: itself.arms.clone(),
                slice: itself.slice.clone(),
                caveats: lab.into_iter().chain([restarted]).collect(),
                workload: Workload::from(command.clone()),
                sample: length + request::BESIDE_A_SAMPLE,
                beside_boots: length,
                path: Box::new(itself),
            })
        }
    }
}

/// Bare metal if there is any, the guest as it was found and as virt-install writes it, and every plan.
fn ways(request: &TuneRequest) -> Result<Vec<Way>, MeasureError> {
    let (guest, found) = (request.on.guest(), request.on.xml_found());
    let virt_install = as_virt_install(found, guest)?;
    let mut ways: Vec<Way> = Places::of(&request.on).bare.map(|_| Way::bare()).into_iter().collect();
    ways.extend([
        Way::clone(ArmName::as_found(), "the domain as it was found", found.to_owned()),
        Way::clone(
            ArmName::virt_install(),
            "as found, with cache=none and io=native as virt-install writes them",
            virt_install,
        ),
    ]);
    ways.extend(
        request
            .arms
            .iter()
            .map(|arm| Way::clone(ArmName::new(&arm.id, &arm.title, Role::Other), &arm.description, arm.xml.clone())),
    );
    Ok(ways)
}

/// The arms of the fresh rounds.
fn confirmed(places: Places, leader: usize) -> Vec<usize> {
    let mut arms: Vec<usize> = places.bare.into_iter().chain([places.found, places.rule, leader]).collect();
    arms.dedup();
    arms
}

/// The winner is what is proposed, whatever the race called it.
fn name_roles(arms: &mut [nearmetal_results::Arm], leader: usize) {
    arms[leader].name.role = Role::Planned;
}

/// The fresh pairs of these arms; `names` are those of all.
fn pairs(arms: &[usize], names: &[ArmName], workload: &Workload, rounds: u32, seed: u64) -> Pairs {
    Pairs::new(Plan {
        arms: arms.iter().map(|arm| names[*arm].clone()).collect(),
        counts: vec![1],
        paired: vec![workload.clone()],
        rounds,
        resolve: None,
        same_arm: Vec::new(),
        same_arm_pairs: 0,
        single_shot: Vec::new(),
        fresh: Fresh::No,
        ceiling: None,
        whole_or_nothing: false,
        reasons: false,
        accesses: 0,
        offers: false,
        accesses_in: Vec::new(),
        // Not the order of the race again.
        seed: seed.wrapping_add(1),
    })
}

/// Pairs of some of the arms.
struct Again {
    arms: Vec<usize>,
    pairs: Pairs,
}

impl crate::engine::Design for Again {
    fn next(
        &mut self,
        runs: &[Run],
        arrange: &mut dyn FnMut(&mut Vec<usize>, &mut crate::engine::SplitMix),
    ) -> Result<Option<crate::engine::Round>, MeasureError> {
        let mut round = self.pairs.next(runs, arrange)?;
        for step in round.iter_mut().flat_map(|round| &mut round.steps) {
            step.arm = self.arms[step.arm];
        }
        Ok(round)
    }

    fn total(&self) -> usize {
        self.pairs.total()
    }

    fn notes(&self) -> Vec<String> {
        self.pairs.notes()
    }
}

/// Runs of the race.
fn of_the_race(run: &&Run) -> bool {
    run.purpose == Purpose::Race
}
