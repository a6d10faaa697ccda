use nearmetal_load::{FioJob, Metric, Unit};
use nearmetal_results::{Full, Outcome};
use nearmetal_units::Bytes;
use proptest::prelude::*;

use super::*;

const EACH: usize = 3;

fn plan(tiles: usize, samples: u32, seed: u64) -> FillPlan {
    let workload = FioJob::first_seed(Bytes::from_kib(4), 1, 0).into();
    FillPlan { arms: vec!["bridge".into(), "vf".into()], each: EACH, tiles, samples, workload, seed }
}

/// The score is the value of a run, and a note says that quality failed.
fn look(run: &Run) -> Option<Look> {
    Some(Look { score: run.value("score")?.value, is_kept: run.notes().is_empty() })
}

/// One sample: nothing, or a score and whether quality was kept.
type Sampled = Option<(f64, bool)>;

fn run(round: &Round, position: usize, sampled: Sampled) -> Run {
    let step = &round.steps[position];
    let outcome = match sampled {
        Some((score, is_kept)) => Outcome::Measured {
            metrics: Metric::new("score", Unit::Share, score).into_iter().collect(),
            notes: if is_kept { vec![] } else { vec!["too late".to_owned()] },
        },
        None => Outcome::Failed { why: "no".into() },
    };
    Run {
        round: round.number,
        position: position as u32,
        purpose: step.purpose,
        arm: ["bridge", "vf"][step.arm].to_owned(),
        count: step.count,
        workload: step.workload.clone(),
        seed: step.seed,
        started: String::new(),
        seconds: 1.0,
        outcome,
        together: None,
    }
}

/// Fills a machine that answers as `machine` says of an arm, a number of tiles and a number of the sample.
fn filled(plan: &FillPlan, machine: &dyn Fn(usize, usize, usize) -> Sampled) -> (Vec<Run>, Vec<Round>) {
    let mut design = Fill::new(plan.clone(), &look);
    let (mut runs, mut rounds) = (Vec::new(), Vec::new());
    while let Some(round) = design.next(&runs, &mut |arms, random| random.shuffle(arms)).unwrap() {
        for (position, step) in round.steps.iter().enumerate() {
            runs.push(run(&round, position, machine(step.arm, step.count / EACH, position)));
        }
        rounds.push(round);
    }
    (runs, rounds)
}

#[test]
fn an_arm_is_filled_until_its_quality_fails_and_the_other_one_goes_on() {
    let machine = |arm: usize, tiles: usize, _| Some((tiles as f64 * 98.0, arm == 1 || tiles < 2));
    let plan = plan(4, 3, 7);
    let (runs, rounds) = filled(&plan, &machine);
    let counts: Vec<usize> = rounds.iter().map(|round| round.steps.len()).collect();
    assert_eq!(counts, [3; 6]);
    assert!(rounds[4..].iter().all(|round| round.steps.iter().all(|step| step.arm == 1)));
    assert_eq!(tiles_held(&runs, "bridge", EACH, 4, &look), Some((2, Full::Quality { failed: 3, of: 3 })));
    assert_eq!(tiles_held(&runs, "vf", EACH, 4, &look), Some((4, Full::NoMoreTiles)));
}

#[test]
fn a_score_that_does_not_rise_ends_it_and_so_does_a_machine_without_figures() {
    let (runs, _) = filled(&plan(5, 2, 7), &|arm, tiles, _| match (arm, tiles) {
        (0, tiles) => Some((tiles.min(2) as f64, true)),
        (_, 3) => None,
        (_, tiles) => Some((tiles as f64, true)),
    });
    assert_eq!(tiles_held(&runs, "bridge", EACH, 5, &look), Some((3, Full::Score { before: 2.0, now: 2.0 })));
    assert_eq!(tiles_held(&runs, "vf", EACH, 5, &look), Some((3, Full::NoFigures)));
}

#[test]
fn half_of_the_samples_is_no_majority_and_those_without_figures_do_not_vote() {
    let (runs, _) =
        filled(&plan(1, 4, 7), &|arm, _, position| Some((1.0, position > 1)).filter(|_| arm == 0 || position != 3));
    assert_eq!(tiles_held(&runs, "bridge", EACH, 1, &look), Some((1, Full::NoMoreTiles)), "2 of 4");
    assert_eq!(tiles_held(&runs, "vf", EACH, 1, &look), Some((1, Full::Quality { failed: 2, of: 3 })));
}

#[test]
fn one_sample_that_an_overload_spared_speaks_for_nobody() {
    let (runs, _) = filled(&plan(1, 3, 7), &|arm, _, position| Some((1.0, true)).filter(|_| position <= 1 - arm));
    assert_eq!(tiles_held(&runs, "bridge", EACH, 1, &look), Some((1, Full::NoMoreTiles)), "2 of 3");
    assert_eq!(tiles_held(&runs, "vf", EACH, 1, &look), Some((1, Full::NoFigures)), "1 of 3");
}

proptest! {
    /// Whatever the machine does: every arm has all its samples of 1, 2, … tiles without a gap, none behind the number that it
    /// is full with, and none of more tiles than there are; both arms have the same seeds with as many tiles.
    #[test]
    fn it_adds_one_tile_at_a_time_and_stops_where_an_arm_is_full(
        tiles in 1usize..6,
        samples in 1u32..5,
        seed in any::<u64>(),
        answers in proptest::collection::vec((0u8..4, 0.5f64..200.0), 64),
    ) {
        let machine = |arm: usize, tiles: usize, position: usize| {
            let (what, score) = answers[(arm * 31 + tiles * 7 + position) % answers.len()];
            (what != 0).then_some((score, what != 1))
        };
        let plan = plan(tiles, samples, seed);
        let (runs, rounds) = filled(&plan, &machine);
        for arm in &plan.arms {
            let (most, _) = tiles_held(&runs, arm, EACH, tiles, &look).expect("every arm is full in the end");
            for number in 1..=tiles {
                let there = runs.iter().filter(|run| run.arm == *arm && run.count == number * EACH).count();
                prop_assert_eq!(there, if number <= most { samples as usize } else { 0 });
            }
        }
        let seeds = |round: &Round| round.steps.iter().map(|step| step.seed).collect::<Vec<_>>();
        for (number, round) in rounds.iter().enumerate() {
            prop_assert_eq!(round.number as usize, number);
            prop_assert!(round.steps.iter().all(|step| (step.arm, step.count) == (round.steps[0].arm, round.steps[0].count)));
            let alike = rounds.iter().filter(|other| other.steps[0].count == round.steps[0].count);
            prop_assert!(alike.clone().count() <= 2 && alike.clone().all(|other| seeds(other) == seeds(round)));
        }
    }

    /// An interrupted measurement goes on as it would have: the design knows nothing but the runs.
    #[test]
    fn what_comes_next_hangs_on_the_runs_alone(
        tiles in 1usize..5, seed in any::<u64>(), scores in proptest::collection::vec(0.5f64..200.0, 16),
    ) {
        let machine = |arm: usize, tiles: usize, position: usize| {
            Some((scores[(arm * 5 + tiles * 3 + position) % scores.len()], position % 5 != 4))
        };
        let plan = plan(tiles, 2, seed);
        let (runs, rounds) = filled(&plan, &machine);
        let mut again = Fill::new(plan, &look);
        for (number, round) in rounds.iter().enumerate() {
            let known: Vec<Run> = runs.iter().filter(|run| (run.round as usize) < number).cloned().collect();
            let next = again.next(&known, &mut |arms, random| random.shuffle(arms)).unwrap();
            prop_assert_eq!(next.as_ref(), Some(round));
        }
    }
}
