//! Races among arms whose truth is known: how often the best is lost, and whether the slack is honest.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_stats::{Fate, Race, doubling_looks};
use oorandom::Rand64;

/// Looks of the races here: 3, 6, 12 and 24 rounds.
fn looks() -> Vec<u32> {
    doubling_looks(3, 4)
}

/// A standard normal value (Box and Muller 1958).
fn normal(random: &mut Rand64) -> f64 {
    let radius = (-2.0 * (1.0 - random.rand_float()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.rand_float()).cos()
}

/// A whole race: arm values are exp(truth + a disturbance of the round + noise). Gives the race and the runs it took.
fn run(truth: &[f64], can_win: &[bool], noise: f64, budget: u64, seed: u64) -> (Race, u64) {
    let mut random = Rand64::new(u128::from(seed));
    let mut race = Race::new(can_win, 0, 0.05, &looks()).unwrap();
    let mut runs = 0;
    while !race.is_over() {
        for _ in 0..race.rounds_to_look() {
            // What a whole round shares: a neighbour, heat. Larger than what tells the arms apart.
            let round = 0.3 * normal(&mut random);
            let values: Vec<_> = race
                .next_round()
                .into_iter()
                .map(|arm| (arm, Some((truth[arm] + round + noise * normal(&mut random)).exp())))
                .collect();
            runs += values.len() as u64;
            race.record(&values).unwrap();
        }
        let left = race.looks_left().saturating_sub(1).max(1) as u64;
        race.look(budget.saturating_sub(runs) / left);
    }
    (race, runs)
}

/// Twelve arms from 0 down in steps, the default (arm 0) among the worst.
fn ladder(step: f64) -> Vec<f64> {
    let mut truth: Vec<f64> = (0..12).map(|rank| -step * f64::from(rank)).collect();
    truth.swap(0, 9);
    truth
}

const RACES: u64 = 400;
/// Of 400 races, each wrong with 5 %, more than 33 are wrong in one of a thousand such tests.
const MOST_WRONG: usize = 33;

#[test]
fn the_best_arm_is_found_at_least_as_often_as_stated() {
    let truth = ladder(0.1);
    let wrong = (0..RACES).filter(|seed| run(&truth, &[true; 12], 0.05, 150, *seed).0.leader() != Some(9)).count();
    assert!(wrong <= MOST_WRONG, "{wrong} of {RACES} races were won by another");
    let none = (0..RACES).filter(|seed| run(&truth, &[true; 12], 0.05, 150, *seed).1 > 12 * 24 / 2).count();
    assert_eq!(none, 0, "bad arms leave early: half of the runs of a full design suffice");
}

#[test]
fn no_arm_is_better_than_the_winner_by_more_than_the_slack() {
    // Near ties, noise and a small budget: the best is often cut, and the slack must own up to it.
    let truth = ladder(0.01);
    let (mut wrong, mut missed) = (0, 0);
    for seed in 0..RACES {
        let (race, _) = run(&truth, &[true; 12], 0.08, 120, seed);
        let winner = race.leader().unwrap();
        missed += usize::from(winner != 9);
        wrong += usize::from(race.slack().is_none_or(|slack| truth[9] - truth[winner] > slack.ln()));
    }
    assert!(missed > 40, "only {missed} races missed the best: too easy to say anything of the slack");
    assert!(wrong <= MOST_WRONG, "{wrong} of {RACES} claims were wrong");
}

#[test]
fn the_best_arm_is_shown_worse_no_more_often_than_stated() {
    // All equal: whoever is shown worse is shown so wrongly. Runs are no limit.
    let wrong = (0..RACES)
        .filter(|seed| {
            let (race, _) = run(&[0.0; 12], &[true; 12], 0.05, u64::MAX, *seed);
            race.fates()[9] != Fate::Racing
        })
        .count();
    assert!(wrong <= MOST_WRONG, "{wrong} of {RACES}");
}

#[test]
fn an_arm_that_cannot_win_never_does_and_drives_nobody_out() {
    let mut truth = ladder(0.1);
    truth[5] = 2.0;
    let can_win: Vec<bool> = (0..12).map(|arm| arm != 5).collect();
    for seed in 0..100 {
        let (race, _) = run(&truth, &can_win, 0.05, 200, seed);
        assert_ne!(race.leader(), Some(5));
        let by_it = race.fates().iter().any(|fate| matches!(fate, Fate::ShownWorse { than: 5, .. }));
        assert!(!by_it, "{:?}", race.fates());
        assert_eq!(race.fates()[5], Fate::Racing, "it is far ahead of all: nothing shows it worse, nothing cuts it");
    }
}

#[test]
fn a_budget_is_kept_and_what_it_cut_is_not_called_worse() {
    for budget in [40, 60, 100] {
        let (race, runs) = run(&[0.0; 12], &[true; 12], 0.2, budget, 3);
        // The first rung is always run: without it nobody has a figure.
        assert!(runs <= budget.max(36) + 2 * 24, "{runs} runs of {budget}");
        assert!(race.fates().iter().any(|fate| matches!(fate, Fate::Cut { .. })), "{:?}", race.fates());
        assert!(race.slack().is_some_and(|slack| slack > 1.0));
    }
}

#[test]
fn an_arm_that_fails_twice_is_withdrawn_and_one_failure_is_survived() {
    let mut race = Race::new(&[true; 3], 0, 0.05, &[4, 8]).unwrap();
    for round in 0..4 {
        let second = (round != 1).then_some(2.0);
        race.record(&[(0, Some(1.0)), (1, second), (2, None)]).unwrap();
    }
    race.look(100);
    assert_eq!(race.fates()[2], Fate::Withdrawn);
    assert_eq!((race.leader(), race.measured(1), race.measured(2)), (Some(1), 3, 0));
    assert!(race.is_over(), "the default is shown worse and nobody else is left");
    assert_eq!(race.fates()[0], Fate::ShownWorse { look: 0, than: 1 });
}

#[test]
fn what_makes_no_race_is_refused() {
    for (can_win, partner, error, looks) in [
        (vec![true], 0, 0.05, vec![3]),
        (vec![false; 3], 0, 0.05, vec![3]),
        (vec![true; 3], 3, 0.05, vec![3]),
        (vec![true; 3], 0, 0.0, vec![3]),
        (vec![true; 3], 0, f64::NAN, vec![3]),
        (vec![true; 3], 0, 0.05, vec![]),
        (vec![true; 3], 0, 0.05, vec![3, 3]),
        (vec![true; 3], 0, 0.05, vec![0]),
    ] {
        assert!(Race::new(&can_win, partner, error, &looks).is_err(), "{can_win:?} {partner} {error} {looks:?}");
    }
    let mut race = Race::new(&[true; 2], 0, 0.05, &[3]).unwrap();
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(race.record(&[(0, Some(value)), (1, Some(1.0))]).is_err(), "{value}");
    }
    assert!(race.record(&[(2, Some(1.0))]).is_err());
    assert_eq!(race.rounds(), 0, "a round that was refused did not happen");
    assert_eq!(doubling_looks(3, 4), [3, 6, 12, 24]);
}
