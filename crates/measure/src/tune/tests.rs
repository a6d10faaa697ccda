//! The parts of a tune on invented figures; the whole of it runs in `played`.

use nearmetal_load::{FioJob, Metric, Unit, Workload};
use nearmetal_results::Outcome;
use nearmetal_stats::{Race, doubling_looks};
use nearmetal_units::Bytes;
use proptest::prelude::*;

use super::*;
use crate::engine::{Design, SplitMix};

fn workload() -> Workload {
    FioJob::first_seed(Bytes::from_kib(4), 1, 0).into()
}

/// Carries out a design on arms with these rates and seconds a run, each a little different every time.
fn play(design: &mut dyn Design, rates: &[f64], seconds: &[f64]) -> Vec<Run> {
    let mut runs = Vec::new();
    while let Some(round) = design.next(&runs, &mut |arms, random: &mut SplitMix| random.shuffle(arms)).unwrap() {
        for (position, step) in round.steps.iter().enumerate() {
            let noise = SplitMix::new(step.seed + 1000 * step.arm as u64).next() as f64 / u64::MAX as f64;
            let value = rates[step.arm] * (1.0 + 0.04 * (noise - 0.5));
            runs.push(Run {
                round: round.number,
                position: position as u32,
                purpose: step.purpose,
                arm: format!("arm{}", step.arm),
                count: 1,
                workload: step.workload.clone(),
                seed: step.seed,
                started: String::new(),
                seconds: seconds[step.arm] * (1.0 + 0.2 * noise),
                outcome: Outcome::Measured {
                    metrics: Metric::new("iops", Unit::Iops, value).into_iter().collect(),
                    notes: vec![],
                },
                together: None,
            });
        }
    }
    runs
}

/// A race of all arms, of which the first is the one as found, within a time.
fn race(rates: &[f64], costs: &[f64], seconds: f64, seed: u64) -> (Race, Vec<Run>) {
    let can_win: Vec<bool> = (0..rates.len()).map(|arm| arm > 0).collect();
    let race = Race::new(&can_win, 0, 0.05, &doubling_looks(FIRST_LOOK, TUNE_LOOKS)).unwrap();
    let ids: Vec<String> = (0..rates.len()).map(|arm| format!("arm{arm}")).collect();
    let racing = Racing::new(race, ids.iter().cloned().enumerate().collect(), workload(), seconds, seed);
    let mut within = Within::new(racing, ids, seconds, costs.to_vec());
    let runs = play(&mut within, rates, costs);
    (within.into_design().race().clone(), runs)
}

#[test]
fn a_step_that_was_tried_again_costs_both_tries() {
    let names = [ArmName::as_found(), ArmName::planned()];
    let design = || Again { arms: vec![0, 1], pairs: pairs(&[0, 1], &names, &workload(), 1, 7) };
    let made = play(&mut design(), &[1000.0; 2], &[10.0; 2]);
    let tries: Vec<Run> = made.iter().flat_map(|run| [run.clone(), run.clone()]).collect();
    let costs = |runs: &[Run]| {
        let ids = vec!["arm0".to_owned(), "arm1".to_owned()];
        let mut within = Within::new(design(), ids, 1e6, vec![1.0; 2]);
        within.next(runs, &mut |_, _| {}).unwrap();
        within.costs()
    };
    let twice: Vec<f64> = costs(&made).into_iter().map(|seconds| seconds * 2.0).collect();
    assert_eq!(costs(&tries), twice);
}

proptest! {
    #[test]
    fn no_race_takes_more_than_its_time(
        arms in prop::collection::vec((500.0f64..2000.0, 5.0f64..40.0), 2..12),
        seconds in 10.0f64..4000.0,
        seed: u64,
    ) {
        let (rates, costs): (Vec<f64>, Vec<f64>) = arms.into_iter().unzip();
        let (_, runs) = race(&rates, &costs, seconds, seed);
        let took: f64 = runs.iter().map(|run| run.seconds).sum();
        prop_assert!(took <= seconds, "{took} of {seconds} s");
    }

    #[test]
    fn halving_finds_the_best_and_every_arm_has_its_first_rounds(seed: u64, best in 1usize..10) {
        let mut rates = [1000.0; 10];
        rates[best] = 1300.0;
        let (race, runs) = race(&rates, &[12.0; 10], 1200.0, seed);
        prop_assert_eq!(race.leader(), Some(best));
        for arm in 0..rates.len() {
            prop_assert!(race.measured(arm) >= FIRST_LOOK as usize, "arm {}: {:?}", arm, race.fates());
        }
        prop_assert!(runs.len() < 100);
    }

    #[test]
    fn fresh_pairs_hold_every_arm_once_and_end_in_time(seed: u64, seconds in 30.0f64..2000.0) {
        let names = [ArmName::bare_slice(), ArmName::as_found(), ArmName::virt_install(), ArmName::planned()];
        let arms = confirmed(Places { bare: Some(0), found: 1, rule: 3 }, 3);
        prop_assert_eq!(&arms, &[0, 1, 3], "the plan by rule that wins is there once");
        let ids = (0..4).map(|arm| format!("arm{arm}")).collect();
        let again = Again { arms: arms.clone(), pairs: pairs(&arms, &names, &workload(), 20, seed) };
        let mut within = Within::new(again, ids, seconds, vec![10.0; 4]);
        let runs = play(&mut within, &[1000.0; 4], &[10.0; 4]);
        prop_assert!(runs.iter().map(|run| run.seconds).sum::<f64>() <= seconds);
        prop_assert_eq!(runs.len() % 3, 0, "whole rounds");
        prop_assert!(runs.iter().all(|run| run.arm != "arm2" && run.purpose == Purpose::Pair));
    }
}
