//! The design of pairs: rounds in which every arm runs once, in an order drawn per round; with one tenant, with all at once,
//! or with one, two and so on to all of them.
//!
//! Running all of one arm and then all of the next lets drift (neighbours, temperature) pass for a difference; in a
//! round the arms are minutes apart at most, and the random order keeps any of them from always going first
//! (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013).
//!
//! A load may have a second part: the same work at parts of the rate that bare metal reached ([`crate::load::Load::at_parts_of`]). Its rounds
//! come last, as many as were planned of the first part.
//!
//! With [`Plan::resolve`] the first rounds are a pilot. From their scatter, and before anybody looks at a ratio, the number
//! of pairs is worked out that brings every interval to the width asked for; it is then fixed. Stopping when a result
//! pleases is not an experiment.

use std::collections::VecDeque;

use nearmetal_stats::{PairsNeeded, pairs_needed};

use super::SplitMix;
use super::round::{Design, Fresh, GIVE_UP_AFTER, Round, Step};
use crate::arm::{ArmName, against};
use crate::compare::{CONFIDENCE, pairs};
use crate::error::MeasureError;
use crate::load::Workload;
use crate::results::{Purpose, Run};

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
    /// Whether what a load has beside its first part ([`crate::load::Load::at_parts_of`]) runs, too.
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
    Resolved,
    /// What hangs on the rate of bare metal is queued.
    Offered,
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
        let last = plan.resolve.is_none();
        pairs.queue(entries, &mut random);
        if last {
            pairs.last(&mut random);
        }
        pairs
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
        self.stage = Stage::Resolved;
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

    /// Rounds of the same work at parts of what bare metal did, where a load has that, it is asked for, and bare metal did
    /// anything.
    fn offer(&mut self, runs: &[Run]) {
        self.stage = Stage::Offered;
        let mut random = SplitMix::new(self.plan.seed.wrapping_add(2));
        let mut entries = Vec::new();
        let bare = self.plan.arms.iter().find(|arm| arm.is_bare()).filter(|_| self.plan.offers);
        for workload in bare.iter().flat_map(|_| &self.plan.paired) {
            let Some(rate) = bare.and_then(|bare| median_rate(runs, workload, bare)) else { continue };
            let Some(offered) = workload.load().at_parts_of(rate) else { continue };
            let pair = self.pair(&offered, 1);
            entries.extend((0..self.plan.rounds).map(|_| pair.clone()));
        }
        self.queue(entries, &mut random);
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
        self.last(&mut random);
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
        let pilot = pairs(&of, &rate, &arms[subject].id, &arms[reference].id);
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
mod tests {
    use nearmetal_units::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::load::FioJob;
    use crate::results::tests::sample_results;

    fn job(size: u64) -> Workload {
        Workload::Fio(FioJob::first_seed(Bytes::new(size), 5, 1))
    }

    fn plan(rounds: u32, seed: u64) -> Plan {
        Plan {
            arms: vec![ArmName::bare_slice(), ArmName::as_found(), ArmName::planned(), ArmName::virt_install()],
            counts: vec![1],
            paired: vec![job(4096)],
            rounds,
            resolve: None,
            same_arm: vec![0, 2],
            same_arm_pairs: 2,
            ceiling: None,
            whole_or_nothing: false,
            single_shot: vec![(job(512), vec![0, 1, 2, 3]), (job(8192), vec![0, 2])],
            fresh: Fresh::Round,
            reasons: true,
            accesses: 2,
            accesses_in: vec![1, 2],
            offers: false,
            seed,
        }
    }

    fn all(mut pairs: Pairs, runs: &[Run]) -> Vec<Round> {
        let mut rounds = Vec::new();
        while let Some(round) = pairs.next(runs, &mut |_, _| {}).unwrap() {
            rounds.push(round);
        }
        assert_eq!(rounds.iter().map(|round| round.steps.len()).sum::<usize>(), pairs.total());
        rounds
    }

    proptest! {
        #[test]
        fn every_round_holds_every_arm_once_with_one_seed(seed: u64, count in 1u32..12) {
            let rounds = all(Pairs::new(plan(count, seed)), &[]);
            prop_assert_eq!(&rounds, &all(Pairs::new(plan(count, seed)), &[]), "the same seed gives the same order");
            let of = |purpose| rounds.iter().filter(move |round| round.steps[0].purpose == purpose);
            prop_assert_eq!(of(Purpose::Pair).count(), count as usize);
            prop_assert_eq!(of(Purpose::SameArm).count(), 4);
            prop_assert_eq!(of(Purpose::SingleShot).map(|round| round.steps.len()).collect::<Vec<_>>(), [4, 2]);
            prop_assert_eq!(of(Purpose::Accesses).map(|round| round.steps.len()).collect::<Vec<_>>(), [2, 2]);
            prop_assert_eq!(of(Purpose::ExitReasons).map(|round| round.steps.len()).collect::<Vec<_>>(), [3]);
            for (number, round) in rounds.iter().enumerate() {
                prop_assert_eq!(round.number, number as u32);
                let seed = round.steps[0].seed;
                prop_assert!(round.steps.iter().all(|step| step.seed == seed && seed > 0 && seed < 1 << 31));
                let arms: std::collections::BTreeSet<_> = round.steps.iter().map(|step| step.arm).collect();
                match round.steps[0].purpose {
                    Purpose::SameArm => prop_assert_eq!((round.steps.len(), arms.len()), (2, 1)),
                    _ => prop_assert_eq!(round.steps.len(), arms.len()),
                }
            }
        }
    }

    #[test]
    fn exits_by_reason_are_counted_under_a_load_whose_costs_are() {
        let files = Workload::FileSystem(crate::load::FileJob::fourth_seed(
            crate::load::FileSystem::Xfs,
            Bytes::from_kib(64),
            Bytes::from_mib(64),
        ));
        let under = |paired: Vec<Workload>| {
            let rounds = all(Pairs::new(Plan { paired, ..plan(2, 1) }), &[]);
            let round = rounds.into_iter().find(|round| round.steps[0].purpose == Purpose::ExitReasons);
            round.map(|round| round.steps[0].workload.clone())
        };
        assert_eq!(under(vec![files.clone(), job(512)]), Some(job(512)));
        assert_eq!(under(vec![files]), None);
    }

    #[test]
    fn no_arm_always_goes_first() {
        let rounds = all(Pairs::new(plan(40, 1)), &[]);
        let firsts: std::collections::BTreeSet<_> = rounds.iter().map(|round| round.steps[0].arm).collect();
        assert_eq!(firsts.len(), 4);
    }

    #[test]
    fn a_scattered_pilot_needs_more_pairs_than_it_had() {
        let results = sample_results();
        let arms: Vec<ArmName> = results.arms.iter().map(|arm| arm.name.clone()).collect();
        let needed = |workload: &Workload, resolve| needed(&results.runs, &arms, (workload, 1), resolve).unwrap();
        let (wide, narrow) = (needed(&job(4096), 0.5).unwrap(), needed(&job(4096), 0.005).unwrap());
        assert_eq!(wide.n, 3, "three pairs of much the same ratio");
        assert!(narrow.n > wide.n, "{narrow:?}");
        assert_eq!(needed(&job(65_536), 0.05), None);
    }

    #[test]
    fn what_the_pilot_asks_for_goes_on_counting_and_comes_before_what_runs_once() {
        let results = sample_results();
        let two = Plan {
            arms: vec![ArmName::bare_slice(), ArmName::planned()],
            rounds: 3,
            resolve: Some(0.005),
            same_arm: vec![],
            single_shot: vec![(job(512), vec![0, 1])],
            ..plan(3, 7)
        };
        let mut pairs = Pairs::new(two);
        let first: Vec<Round> = (0..3).filter_map(|_| pairs.next(&[], &mut |_, _| {}).unwrap()).collect();
        assert!(first.iter().all(|round| round.steps[0].purpose == Purpose::Pair));
        let rest: Vec<Round> = std::iter::from_fn(|| pairs.next(&results.runs, &mut |_, _| {}).unwrap()).collect();
        assert!(rest.len() > 3 && rest[0].number == 3 && rest[0].steps[0].purpose == Purpose::Pair);
        assert_eq!(rest.last().map(|round| round.steps[0].purpose), Some(Purpose::SingleShot));
        assert!(pairs.notes()[0].contains("fixed after a pilot of 3"), "{:?}", pairs.notes());
        assert!(!pairs.notes()[0].contains("at once"), "one guest is alone anyway: {:?}", pairs.notes());
    }

    #[test]
    fn every_number_of_tenants_gets_its_pairs_and_no_side_always_goes_first() {
        let plan = Plan {
            arms: vec![ArmName::bare_slice(), ArmName::planned()],
            counts: vec![1, 2, 4],
            same_arm: vec![1],
            single_shot: vec![],
            ceiling: Some((2, 3)),
            whole_or_nothing: true,
            reasons: false,
            accesses: 0,
            accesses_in: Vec::new(),
            ..plan(20, 7)
        };
        let rounds = all(Pairs::new(plan), &[]);
        let pairs: Vec<&Round> = rounds.iter().filter(|round| round.steps[0].purpose == Purpose::Pair).collect();
        assert!(pairs.iter().all(|round| round.whole_or_nothing));
        for count in [1, 2, 4] {
            assert_eq!(pairs.iter().filter(|round| round.steps[0].count == count).count(), 20);
        }
        let first = pairs.iter().filter(|round| round.steps[0].arm == 0).count();
        assert!((15..=45).contains(&first), "{first} of 60");
        assert!(pairs[..20].iter().any(|round| round.steps[0].count != pairs[0].steps[0].count), "they are mixed");
        assert!(
            rounds[..3].iter().all(|round| round.steps[0].purpose == Purpose::Ceiling && round.steps[0].count == 4)
        );
        let of_all = rounds.iter().filter(|round| round.steps[0].purpose == Purpose::SameArm);
        assert!(of_all.clone().count() == 2 && of_all.clone().all(|round| round.steps[0].count == 4));
    }

    #[test]
    fn a_pilot_fixes_the_pairs_of_each_number_of_tenants() {
        let mut results = sample_results();
        // What one tenant did is scattered; two at once were never paired.
        results.runs.iter_mut().for_each(|run| run.count = 1);
        let plan = Plan {
            arms: vec![ArmName::bare_slice(), ArmName::planned()],
            counts: vec![1, 2],
            rounds: 3,
            resolve: Some(0.005),
            same_arm: vec![],
            single_shot: vec![],
            reasons: false,
            accesses: 0,
            accesses_in: Vec::new(),
            ..plan(3, 7)
        };
        let mut pairs = Pairs::new(plan);
        (0..6).for_each(|_| assert!(pairs.next(&[], &mut |_, _| {}).unwrap().is_some()));
        let rest: Vec<Round> = std::iter::from_fn(|| pairs.next(&results.runs, &mut |_, _| {}).unwrap()).collect();
        assert!(rest.len() > 3 && rest.iter().all(|round| round.steps[0].count == 1), "{}", rest.len());
        assert!(pairs.notes()[0].contains("1 at once: "), "{:?}", pairs.notes());
    }

    /// Rounds in which each arm did this.
    fn measured(rounds: &[[(&ArmName, f64); 3]]) -> Vec<Run> {
        let model = &sample_results().runs[0];
        let run = |round: usize, (arm, value): (&ArmName, f64)| Run {
            round: round as u32,
            arm: arm.id.clone(),
            outcome: crate::results::Outcome::Measured {
                metrics: crate::metric::Metric::new("iops", crate::metric::Unit::Iops, value).into_iter().collect(),
                notes: vec![],
            },
            ..model.clone()
        };
        rounds.iter().enumerate().flat_map(|(round, arms)| arms.map(|arm| run(round, arm))).collect()
    }

    #[test]
    fn the_two_arms_that_scatter_most_say_how_many_pairs_all_need() {
        let arms = [ArmName::bare_slice(), ArmName::as_found(), ArmName::planned()];
        for loud in 0..3 {
            let value = |round: usize, arm: usize| {
                let each = if arm == loud { [1000.0, 1400.0, 1200.0] } else { [1000.0, 1010.0, 1005.0] };
                (&arms[arm], each[(round + arm) % 3])
            };
            let rounds: Vec<_> = (0..3).map(|round| [value(round, 0), value(round, 1), value(round, 2)]).collect();
            let runs = measured(&rounds);
            let of = |arms: &[ArmName]| needed(&runs, arms, (&job(4096), 1), 0.05).unwrap().unwrap().uncapped;
            let two = [(0, 1), (0, 2), (1, 2)].map(|(one, other)| of(&[arms[one].clone(), arms[other].clone()]));
            assert!(two.iter().min() < two.iter().max(), "{two:?}");
            assert_eq!(Some(&of(&arms)), two.iter().max(), "{} is the loud one", arms[loud].id);
            // Two pairs have a spread, one has none.
            let of = |rounds: usize| needed(&runs[..3 * rounds], &arms, (&job(4096), 1), 0.05).unwrap();
            assert!(of(2).is_some() && of(1).is_none());
        }
    }

    #[test]
    fn rounds_behind_the_pilot_mix_the_numbers_of_tenants() {
        let runs: Vec<Run> = sample_results().runs;
        let two_at_once = runs.iter().cloned().map(|run| Run { count: 2, ..run });
        let runs: Vec<Run> = runs.iter().cloned().chain(two_at_once).collect();
        let plan = Plan {
            arms: vec![ArmName::bare_slice(), ArmName::planned()],
            counts: vec![1, 2],
            resolve: Some(0.005),
            same_arm: vec![],
            single_shot: vec![],
            reasons: false,
            accesses_in: Vec::new(),
            ..plan(3, 7)
        };
        let mut pairs = Pairs::new(plan);
        (0..6).for_each(|_| assert!(pairs.next(&[], &mut |_, _| {}).unwrap().is_some()));
        let rest: Vec<Round> = std::iter::from_fn(|| pairs.next(&runs, &mut |_, _| {}).unwrap()).collect();
        let counts: Vec<usize> = rest.iter().map(|round| round.steps[0].count).collect();
        let changes = counts.windows(2).filter(|two| two[0] != two[1]).count();
        // One after the other, what the machine does meanwhile would pass for what a second guest does.
        assert!(changes > 4, "{counts:?}");
    }

    #[test]
    fn accesses_are_counted_only_where_there_are_arms_to_compare() {
        let rounds = |accesses_in: Vec<usize>| {
            let rounds = all(Pairs::new(Plan { accesses_in, ..plan(2, 1) }), &[]);
            rounds.iter().filter(|round| round.steps[0].purpose == Purpose::Accesses).count()
        };
        assert_eq!((rounds(vec![]), rounds(vec![2]), rounds(vec![1, 2])), (0, 0, 2));
    }
}
