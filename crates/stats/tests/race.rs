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

/// A race in which arm 0 is the partner, with these values for each arm, one a round.
fn recorded(can_win: &[bool], looks: &[u32], arms: &[&[f64]]) -> Race {
    let mut race = Race::new(can_win, 0, 0.05, looks).unwrap();
    for round in 0..arms[0].len() {
        let values: Vec<_> = arms.iter().map(|values| Some(values[round])).enumerate().collect();
        race.record(&values).unwrap();
    }
    race
}

#[test]
fn rounds_and_looks_are_counted() {
    let mut race = recorded(&[true; 2], &[3, 6, 12], &[&[1.0; 3], &[1.0; 3]]);
    assert_eq!((race.rounds(), race.rounds_to_look(), race.looks_left()), (3, 0, 3));
    race.look(u64::MAX);
    assert_eq!((race.rounds(), race.rounds_to_look(), race.looks_left()), (3, 3, 2));
}

#[test]
fn arms_that_are_equal_to_the_last_digit_are_not_called_worse() {
    let mut race = recorded(&[true; 3], &[3, 6], &[&[2.0; 3], &[2.0; 3], &[2.0; 3]]);
    race.look(u64::MAX);
    assert_eq!(race.fates(), [Fate::Racing; 3]);
    assert_eq!(race.slack(), Some(1.0));
}

#[test]
fn nobody_is_cut_while_the_runs_suffice() {
    let noisy: [&[f64]; 4] = [&[1.0, 1.2, 0.9], &[1.1, 1.0, 1.2], &[0.9, 1.1, 1.0], &[1.0, 0.8, 1.1]];
    // Four arms in each of the three rounds to the next look.
    for (affordable, cut) in [(12, 0), (11, 1)] {
        let mut race = recorded(&[true; 4], &[3, 6], &noisy);
        race.look(affordable);
        let count = race.fates().iter().filter(|fate| matches!(fate, Fate::Cut { .. })).count();
        assert_eq!(count, cut, "{affordable} runs: {:?}", race.fates());
    }
}

#[test]
fn the_slack_is_the_end_of_the_interval_at_the_shared_level() {
    // Logarithms to the leader −0.2, 0.1, 0 and −0.1: mean −0.05, s = 0.129099. Two arms beside the leader and three looks
    // share the error, so t(1 − 0.05/6; 3) = 4.856657; its end is −0.05 + 4.856657·0.129099/√4.
    let close: Vec<f64> = [-0.2, 0.1, 0.0, -0.1].map(f64::exp).to_vec();
    let race = recorded(&[true; 3], &[4, 8, 16], &[&[1.0; 4], &close, &[0.1; 4]]);
    let slack = race.slack().unwrap().ln();
    assert!((slack - 0.263_496).abs() < 1e-6, "{slack}");
    // An arm that cannot win leaves open nothing, however good it is.
    let race = recorded(&[true, false], &[4, 8, 16], &[&[1.0; 4], &[9.0; 4]]);
    assert_eq!(race.slack(), Some(1.0));
}

#[test]
fn the_partner_runs_on_when_it_is_shown_worse_and_not_when_it_fails() {
    let arms: [&[f64]; 3] = [&[1.0; 3], &[2.0, 2.1, 2.0], &[2.1, 2.0, 2.1]];
    let mut race = recorded(&[true; 3], &[3, 6], &arms);
    race.look(u64::MAX);
    assert!(matches!(race.fates()[0], Fate::ShownWorse { .. }), "{:?}", race.fates());
    assert_eq!(race.next_round(), [0, 1, 2], "every arm has a ratio to it");
    let mut race = Race::new(&[true; 3], 0, 0.05, &[3, 6]).unwrap();
    for _ in 0..2 {
        race.record(&[(0, None), (1, Some(2.0)), (2, Some(2.0))]).unwrap();
    }
    assert_eq!((race.fates()[0], race.next_round()), (Fate::Withdrawn, vec![1, 2]));
}

#[test]
fn without_its_partner_a_race_is_still_won_by_the_best() {
    let mut race = Race::new(&[true; 4], 0, 0.05, &[4, 8]).unwrap();
    for round in 0..4 {
        let scatter = 1.0 + 0.1 * f64::from(round % 2);
        race.record(&[(0, None), (1, Some(1.9)), (2, Some(1.0)), (3, Some(2.0 * scatter))]).unwrap();
    }
    assert_eq!((race.fates()[0], race.leader()), (Fate::Withdrawn, Some(3)), "no round of the partner's counts");
    // Room for two: the worst is cut, and not the first in the list.
    race.look(8);
    assert_eq!(race.next_round(), [1, 3], "{:?}", race.fates());
}
