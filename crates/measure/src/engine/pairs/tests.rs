//! Orders, pilots, and numbers of tenants.

use nearmetal_load::{FioJob, OltpJob};
use nearmetal_results::samples::sample_results;
use nearmetal_units::Bytes;
use proptest::prelude::*;

use super::*;

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
    let files = Workload::FileSystem(nearmetal_load::FileJob::fourth_seed(
        nearmetal_load::FileSystem::Xfs,
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
fn a_kernel_that_cannot_count_reasons_fails_less_often_than_ends_an_experiment() {
    let guests = ["one", "two", "three", "four", "five"].map(|id| ArmName::new(id, id, nearmetal_results::Role::Other));
    let arms = [vec![ArmName::bare_slice()], guests.to_vec()].concat();
    let rounds = all(Pairs::new(Plan { arms, ..plan(2, 1) }), &[]);
    let counted: Vec<&Round> = rounds.iter().filter(|round| round.steps[0].purpose == Purpose::ExitReasons).collect();
    assert_eq!(counted.iter().map(|round| round.steps.len()).collect::<Vec<_>>(), [GIVE_UP_AFTER as usize - 1]);
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
    // Of what is no pair, one run says something without the other.
    let is_pair = |round: &Round| round.steps[0].purpose == Purpose::Pair;
    assert!(rounds.iter().all(|round| round.whole_or_nothing == is_pair(round)));
    for count in [1, 2, 4] {
        assert_eq!(pairs.iter().filter(|round| round.steps[0].count == count).count(), 20);
    }
    let first = pairs.iter().filter(|round| round.steps[0].arm == 0).count();
    assert!((15..=45).contains(&first), "{first} of 60");
    assert!(pairs[..20].iter().any(|round| round.steps[0].count != pairs[0].steps[0].count), "they are mixed");
    assert!(rounds[..3].iter().all(|round| round.steps[0].purpose == Purpose::Ceiling && round.steps[0].count == 4));
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
        outcome: nearmetal_results::Outcome::Measured {
            metrics: nearmetal_load::Metric::new("iops", nearmetal_load::Unit::Iops, value).into_iter().collect(),
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

/// What all arms did in their pairs of the database.
fn transacted(arms: &[ArmName]) -> Vec<Run> {
    let model = &sample_results().runs[0];
    let metric = nearmetal_load::Metric::new("transactions", nearmetal_load::Unit::TransactionsPerSecond, 100.0);
    let outcome = nearmetal_results::Outcome::Measured { metrics: metric.into_iter().collect(), notes: vec![] };
    let run = |round: u32, arm: &ArmName| Run {
        round,
        purpose: Purpose::Pair,
        arm: arm.id.clone(),
        workload: OltpJob::small().into(),
        outcome: outcome.clone(),
        ..model.clone()
    };
    (0..3).flat_map(|round| arms.iter().map(move |arm| run(round, arm)).collect::<Vec<_>>()).collect()
}

#[test]
fn what_is_offered_comes_behind_the_pairs_and_before_what_runs_once() {
    // An arm may be changed for its single shots (a slice's, as found, loses its transparent pages) and stays so.
    for resolve in [None, Some(0.5)] {
        let plan = Plan { paired: vec![OltpJob::small().into()], resolve, offers: true, ..plan(3, 1) };
        let runs = transacted(&plan.arms);
        let rounds = all(Pairs::new(plan.clone()), &runs);
        let is_offered =
            |round: &Round| matches!(&round.steps[0].workload, Workload::Oltp(job) if !job.offered.is_empty());
        let offered: Vec<usize> = (0..rounds.len()).filter(|place| is_offered(&rounds[*place])).collect();
        assert_eq!(offered.len(), 3, "as many as were planned");
        assert!(offered.iter().all(|place| rounds[*place].steps[0].purpose == Purpose::Pair));
        let before = |round: &Round| matches!(round.steps[0].purpose, Purpose::Pair | Purpose::SameArm);
        assert!(rounds[..offered[0]].iter().all(before), "{resolve:?}");
        assert!(rounds[offered[2] + 1..].iter().all(|round| !before(round)), "{resolve:?}");
        assert_eq!(rounds[offered[2] + 1..].len(), 2 + 1 + 2, "accesses, reasons and single shots");
        assert_eq!(rounds, all(Pairs::new(plan), &runs), "the same runs give the same order");
    }
    // Bare metal failed, or nobody asked: nothing is offered, and what runs once runs.
    for (offers, has_failed) in [(true, true), (false, false)] {
        let plan = Plan { paired: vec![OltpJob::small().into()], offers, ..plan(3, 1) };
        let runs = if has_failed { Vec::new() } else { transacted(&plan.arms) };
        let of = |purpose| move |round: &&Round| round.steps[0].purpose == purpose;
        let rounds = all(Pairs::new(plan), &runs);
        let counts = [Purpose::Pair, Purpose::SingleShot].map(|purpose| rounds.iter().filter(of(purpose)).count());
        assert_eq!(counts, [3, 2], "asked: {offers}");
    }
}

#[test]
fn what_is_offered_hangs_on_what_bare_metal_has_done_in_half_of_its_pairs() {
    let bare = ArmName::bare_slice();
    let model = transacted(std::slice::from_ref(&bare)).remove(0);
    let run = |rate: f64| {
        let metric = nearmetal_load::Metric::new("transactions", nearmetal_load::Unit::TransactionsPerSecond, rate);
        let outcome = nearmetal_results::Outcome::Measured { metrics: metric.into_iter().collect(), notes: vec![] };
        Run { outcome, ..model.clone() }
    };
    // What is not bare metal's in a pair of this load is another matter.
    let others = [
        Run { purpose: Purpose::SameArm, ..run(1.0) },
        Run { arm: ArmName::planned().id, ..run(2.0) },
        Run { workload: Workload::Oltp(OltpJob { threads: 9, ..OltpJob::small() }), ..run(3.0) },
        Run { outcome: nearmetal_results::Outcome::Failed { why: "no".into() }, ..model.clone() },
    ];
    let median = |rates: &[f64]| {
        let runs: Vec<Run> = others.iter().cloned().chain(rates.iter().map(|rate| run(*rate))).collect();
        median_rate(&runs, &OltpJob::small().into(), &bare)
    };
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[70.0]), Some(70.0));
    assert_eq!(median(&[90.0, 50.0, 60.0, 80.0, 70.0]), Some(70.0));
    assert_eq!(median(&[90.0, 50.0, 60.0, 80.0]), Some(60.0), "of an even number the lower one, which it has done");
}
