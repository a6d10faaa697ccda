//! The design of pairs: rounds in which every arm runs once, in an order drawn per round; with one tenant, with all at once,
//! or with one, two and so on to all of them.
//!
//! Running all of one arm and then all of the next lets drift (neighbours, temperature) pass for a difference; in a
//! round the arms are minutes apart at most, and the random order keeps any of them from always going first
//! (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013).
//!
//! A load may have a second part: the same work at parts of the rate that bare metal reached ([`nearmetal_load::Load::at_parts_of`]). Its rounds
//! come behind those of the first part, as many as were planned of it, and before what runs once: an arm may be changed for its
//! single shots and stay so.
//!
//! With [`Plan::resolve`] the first rounds are a pilot. From their scatter, and before anybody looks at a ratio, the number
//! of pairs is worked out that brings every interval to the width asked for; it is then fixed. Stopping when a result
//! pleases is not an experiment.

use std::collections::VecDeque;

use nearmetal_load::Workload;
use nearmetal_results::{ArmName, CONFIDENCE, Purpose, Run, against, pairs_of_runs};
use nearmetal_stats::{PairsNeeded, pairs_needed};

use super::SplitMix;
use super::round::{Design, Fresh, GIVE_UP_AFTER, Round, Step};
use crate::error::MeasureError;

/// How many guests have their exits counted by reason at most: fewer than the failures in a row that end an experiment, so that
/// a kernel that cannot count them takes no figure along.
const MOST_WITH_REASONS: usize = GIVE_UP_AFTER as usize - 1;

/// What is to be run in pairs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// The arms that are paired; steps name them by their place.
    pub arms: Vec<ArmName>,
    /// Numbers of tenants at once: rounds of all of them are mixed.
    pub counts: Vec<usize>,
    /// Workloads run in pairs.
    pub paired: Vec<Workload>,
    /// Rounds of pairs: n of the intervals, or the pilot.
    pub rounds: u32,
    /// The factor above 1, such as 0.05, to which every interval is brought; `None`: the rounds are all.
    pub resolve: Option<f64>,
    /// Arms measured against themselves, for the noise floor.
    pub same_arm: Vec<usize>,
    /// A/A pairs for each of them.
    pub same_arm_pairs: u32,
    /// Workloads run once in these arms.
    pub single_shot: Vec<(Workload, Vec<usize>)>,
    /// Which guests are booted afresh for each round of pairs.
    pub fresh: Fresh,
    /// The arm without a slice, by its place, and how often it is sampled first, with as many as there are tenants.
    pub ceiling: Option<(usize, u32)>,
    /// Whether a round of pairs is given up where one of its arms failed twice.
    pub whole_or_nothing: bool,
    /// Whether the first paired workload whose costs are counted runs once more in each guest arm, with exits counted by
    /// reason.
    pub reasons: bool,
    /// Rounds of that workload with its accesses to memory counted, where that has to be asked for.
    pub accesses: u32,
    /// The arms of these rounds.
    pub accesses_in: Vec<usize>,
    /// Whether what a load has beside its first part ([`nearmetal_load::Load::at_parts_of`]) runs, too.
    pub offers: bool,
    /// The same seed gives the same order.
    pub seed: u64,
}

/// See the module.
pub(crate) struct Pairs {
    plan: Plan,
    queue: VecDeque<Round>,
    stage: Stage,
    next_number: u32,
    total: usize,
    notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Planned,
    /// All pairs of the first part are queued, and there is a second part.
    Resolved,
    /// All is queued.
    Complete,
}

/// Rounds to be.
#[derive(Clone)]
struct Entry {
    purpose: Purpose,
    workload: Workload,
    count: usize,
    arms: Vec<usize>,
}

impl Pairs {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut random = SplitMix::new(plan.seed);
        let mut pairs =
            Self { plan, queue: VecDeque::new(), stage: Stage::Planned, next_number: 0, total: 0, notes: vec![] };
        let (plan, all) = (&pairs.plan, pairs.all());
        let mut entries: Vec<Entry> = Vec::new();
        for workload in &plan.paired {
            for count in &plan.counts {
                let pair = pairs.pair(workload, *count);
                entries.extend((0..plan.rounds).map(|_| pair.clone()));
            }
            for arm in &plan.same_arm {
                let purpose = Purpose::SameArm;
                let same = Entry { purpose, workload: workload.clone(), count: all, arms: vec![*arm, *arm] };
                entries.extend((0..plan.same_arm_pairs).map(|_| same.clone()));
            }
        }
        // A/A rounds are spread among the others, so that the noise floor is that of the same minutes.
        random.shuffle(&mut entries);
        if let (Some((arm, samples)), Some(workload)) = (plan.ceiling, plan.paired.first()) {
            let sample = Entry { purpose: Purpose::Ceiling, workload: workload.clone(), count: all, arms: vec![arm] };
            entries.splice(0..0, (0..samples).map(|_| sample.clone()));
        }
        let resolved = plan.resolve.is_none();
        pairs.queue(entries, &mut random);
        if resolved {
            pairs.resolved(&mut random);
        }
        pairs
    }

    /// All pairs of the first part are queued: what runs once comes next, unless there is a second part, which hangs on what
    /// bare metal will have done.
    fn resolved(&mut self, random: &mut SplitMix) {
        self.stage = Stage::Resolved;
        let has_a_second_part = |workload: &Workload| workload.load().at_parts_of(1.0).is_some();
        if !(self.plan.offers && self.plan.paired.iter().any(has_a_second_part)) {
            self.last(random);
        }
    }

    /// The most tenants at once.
    fn all(&self) -> usize {
        self.plan.counts.iter().copied().max().unwrap_or(1)
    }

    fn pair(&self, workload: &Workload, count: usize) -> Entry {
        let arms = (0..self.plan.arms.len()).collect();
        Entry { purpose: Purpose::Pair, workload: workload.clone(), count, arms }
    }

    fn queue(&mut self, entries: Vec<Entry>, random: &mut SplitMix) {
        for Entry { purpose, workload, count, mut arms } in entries {
            random.shuffle(&mut arms);
            // Each tenant has the next one, in all arms the same.
            let seed = random.load_seed();
            let step = |arm| Step { purpose, arm, count, workload: workload.clone(), seed };
            let steps: Vec<Step> = arms.into_iter().map(step).collect();
            let single = matches!(purpose, Purpose::SingleShot | Purpose::ExitReasons | Purpose::Accesses);
            let fresh = if single { Fresh::No } else { self.plan.fresh };
            let whole_or_nothing = self.plan.whole_or_nothing && purpose == Purpose::Pair;
            self.total += steps.len();
            self.queue.push_back(Round { number: self.next_number, steps, fresh, whole_or_nothing });
            self.next_number += 1;
        }
    }

    /// What comes once, after all pairs.
    fn last(&mut self, random: &mut SplitMix) {
        self.stage = Stage::Complete;
        let (plan, count) = (&self.plan, self.all());
        let once = |purpose, workload: &Workload, arms| Entry { purpose, workload: workload.clone(), count, arms };
        let mut entries: Vec<Entry> = Vec::new();
        let counted = plan.paired.iter().find(|workload| workload.load().middle().is_some());
        if let Some(workload) = counted {
            let rounds = if plan.accesses_in.len() > 1 { plan.accesses } else { 0 };
            for count in &plan.counts {
                let arms = plan.accesses_in.clone();
                let pair = Entry { purpose: Purpose::Accesses, workload: workload.clone(), count: *count, arms };
                entries.extend((0..rounds).map(|_| pair.clone()));
            }
        }
        if let (true, Some(workload)) = (plan.reasons, counted) {
            let guests = (0..plan.arms.len()).filter(|arm| !plan.arms[*arm].is_bare()).take(MOST_WITH_REASONS);
            entries.push(once(Purpose::ExitReasons, workload, guests.collect()));
        }
        let singles = plan.single_shot.iter();
        entries.extend(singles.map(|(workload, arms)| once(Purpose::SingleShot, workload, arms.clone())));
        self.queue(entries, random);
    }

    /// Rounds of the same work at parts of what bare metal did, where a load has that and bare metal did anything, and what
    /// comes after them.
    fn offer(&mut self, runs: &[Run]) {
        let mut random = SplitMix::new(self.plan.seed.wrapping_add(2));
        let mut entries = Vec::new();
        let bare = self.plan.arms.iter().find(|arm| arm.is_bare());
        for workload in bare.iter().flat_map(|_| &self.plan.paired) {
            let Some(rate) = bare.and_then(|bare| median_rate(runs, workload, bare)) else { continue };
            let Some(offered) = workload.load().at_parts_of(rate) else { continue };
            let pair = self.pair(&offered, 1);
            entries.extend((0..self.plan.rounds).map(|_| pair.clone()));
        }
        self.queue(entries, &mut random);
        self.last(&mut random);
    }

    /// More rounds of each workload and number of tenants, as many as the pilot says, and what comes after them.
    fn resolve(&mut self, resolve: f64, runs: &[Run]) -> Result<(), MeasureError> {
        let mut random = SplitMix::new(self.plan.seed.wrapping_add(1));
        let mut entries = Vec::new();
        for (workload, count) in self.plan.paired.iter().flat_map(|one| self.plan.counts.iter().map(move |n| (one, *n)))
        {
            let Some(needed) = needed(runs, &self.plan.arms, (workload, count), resolve)? else { continue };
            let more = (needed.n as u32).saturating_sub(self.plan.rounds);
            let capped =
                if needed.capped { format!(" of the {} it would take", needed.uncapped) } else { String::new() };
            let tenants = if self.all() > 1 { format!(", {count} at once") } else { String::new() };
            self.notes.push(format!(
                "{}{tenants}: {} pairs{capped}, fixed after a pilot of {} to resolve {:.1} %",
                workload.label(),
                self.plan.rounds + more,
                self.plan.rounds,
                resolve * 100.0
            ));
            let pair = self.pair(workload, count);
            entries.extend((0..more).map(|_| pair.clone()));
        }
        if self.plan.counts.len() > 1 {
            random.shuffle(&mut entries);
        }
        self.queue(entries, &mut random);
        self.resolved(&mut random);
        Ok(())
    }
}

impl Design for Pairs {
    fn next(
        &mut self,
        runs: &[Run],
        _: &mut dyn FnMut(&mut Vec<usize>, &mut SplitMix),
    ) -> Result<Option<Round>, MeasureError> {
        if let (true, Stage::Planned, Some(resolve)) = (self.queue.is_empty(), self.stage, self.plan.resolve) {
            self.resolve(resolve, runs)?;
        }
        if self.queue.is_empty() && self.stage == Stage::Resolved {
            self.offer(runs);
        }
        Ok(self.queue.pop_front())
    }

    fn total(&self) -> usize {
        self.total
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// The median of what an arm did in its pairs.
fn median_rate(runs: &[Run], workload: &Workload, arm: &ArmName) -> Option<f64> {
    let rate = workload.rate()?;
    let of = |run: &&Run| run.purpose == Purpose::Pair && run.workload == *workload && run.arm == arm.id;
    let mut rates: Vec<f64> = runs.iter().filter(of).filter_map(|run| Some(run.value(&rate)?.value)).collect();
    rates.sort_by(f64::total_cmp);
    // Of an even number the lower one: what is offered is to be something that bare metal has done.
    rates.get(rates.len().checked_sub(1)? / 2).copied()
}

/// The pairs that one workload with so many tenants needs so that every ratio's interval reaches no farther than a factor of 1 + `resolve`: the
/// most that any two arms need. `None` where the pilot gave fewer than two pairs, or the workload has no rate.
fn needed(
    runs: &[Run],
    arms: &[ArmName],
    (workload, count): (&Workload, usize),
    resolve: f64,
) -> Result<Option<PairsNeeded>, MeasureError> {
    let Some(rate) = workload.rate() else { return Ok(None) };
    let of = |run: &&Run| run.purpose == Purpose::Pair && run.workload == *workload && run.count == count;
    let of: Vec<&Run> = runs.iter().filter(of).collect();
    let mut most: Option<PairsNeeded> = None;
    for (subject, reference) in against(arms) {
        let pilot = pairs_of_runs(&of, &rate, &arms[subject].id, &arms[reference].id);
        if pilot.len() < 2 {
            continue;
        }
        let found = pairs_needed(&pilot, resolve, CONFIDENCE)?;
        if most.is_none_or(|most| found.uncapped > most.uncapped) {
            most = Some(found);
        }
    }
    Ok(most)
}

#[cfg(test)]
mod tests;
