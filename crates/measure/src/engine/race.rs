//! The design of a race: rounds in random order until it is over or its time is ([`nearmetal_stats::Race`]).

use std::collections::BTreeMap;

use nearmetal_load::Workload;
use nearmetal_results::{Purpose, Run, last_tries};
use nearmetal_stats::Race;

use super::SplitMix;
use super::round::{Design, Fresh, Round, Step};
use crate::error::MeasureError;

/// A race among arms.
pub(crate) struct Racing {
    race: Race,
    /// Places and ids of the arms that race, in the order in which the race knows them.
    running: Vec<(usize, String)>,
    workload: Workload,
    /// Name of the metric that decides.
    metric: String,
    /// Seconds it may take.
    seconds: f64,
    random: SplitMix,
    /// The number of the round that was handed out and is not recorded yet.
    pending: Option<u32>,
}

impl Racing {
    /// Among `running`, by their places and ids in the subject's list; the race knows them in that order.
    pub(crate) fn new(race: Race, running: Vec<(usize, String)>, workload: Workload, seconds: f64, seed: u64) -> Self {
        let metric = workload.rate().unwrap_or_default();
        Self { race, running, workload, metric, seconds, random: SplitMix::new(seed), pending: None }
    }

    /// The race as it stands.
    pub(crate) fn race(&self) -> &Race {
        &self.race
    }

    /// Records the round that was handed out.
    fn record(&mut self, number: u32, runs: &[Run]) -> Result<(), MeasureError> {
        let value = |run: &Run| {
            let place = self.running.iter().position(|(_, id)| *id == run.arm)?;
            Some((place, run.value(&self.metric).map(|metric| metric.value)))
        };
        let of = runs.iter().filter(|run| run.round == number && run.purpose == Purpose::Race);
        // One that failed and was tried again counts by its second try.
        let values: BTreeMap<usize, Option<f64>> = of.filter_map(value).collect();
        Ok(self.race.record(&values.into_iter().collect::<Vec<_>>())?)
    }
}

impl Design for Racing {
    fn next(
        &mut self,
        runs: &[Run],
        arrange: &mut dyn FnMut(&mut Vec<usize>, &mut SplitMix),
    ) -> Result<Option<Round>, MeasureError> {
        if let Some(number) = self.pending.take() {
            self.record(number, runs)?;
        }
        if self.race.is_over() {
            return Ok(None);
        }
        if self.race.rounds_to_look() == 0 {
            // Successive halving: what is left of the time is shared equally among the rungs to come. The time is that of
            // the runs, so that an interrupted race goes on as it would have.
            let of: Vec<&Run> = runs.iter().filter(|run| run.purpose == Purpose::Race).collect();
            let took: f64 = of.iter().map(|run| run.seconds).sum();
            // What is afforded is steps, and some are tried twice.
            let steps = last_tries(of.iter().copied(), Run::step).len();
            let (per_step, left) = (took / steps.max(1) as f64, (self.seconds - took).max(0.0));
            let rungs = self.race.looks_left().saturating_sub(1).max(1) as f64;
            self.race.look(if per_step > 0.0 { (left / rungs / per_step) as u64 } else { u64::MAX });
            let all = (left / per_step.max(f64::MIN_POSITIVE)) as u64;
            let next = self.race.next_round().len() as u64 * u64::from(self.race.rounds_to_look());
            if self.race.is_over() || next > all {
                return Ok(None);
            }
        }
        let mut order: Vec<usize> = self.race.next_round().into_iter().map(|place| self.running[place].0).collect();
        arrange(&mut order, &mut self.random);
        let seed = self.random.load_seed();
        let number = self.race.rounds();
        self.pending = Some(number);
        let workload = &self.workload;
        let step = |arm| Step { purpose: Purpose::Race, arm, count: 1, workload: workload.clone(), seed };
        let steps = order.into_iter().map(step).collect();
        Ok(Some(Round { number, steps, fresh: Fresh::No, whole_or_nothing: false }))
    }

    fn total(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_load::{FioJob, Metric, Unit};
    use nearmetal_results::Outcome;
    use nearmetal_stats::{Fate, doubling_looks};
    use nearmetal_units::Bytes;

    use super::*;

    /// Arms with fixed rates, each a little different every time; some fail. A run takes a second.
    fn run(rates: &[f64], failing: &[usize], seconds: f64) -> (Racing, Vec<Run>) {
        runs_of(rates, failing, seconds, 1.0)
    }

    /// The same, where a run takes so many seconds.
    fn runs_of(rates: &[f64], failing: &[usize], seconds: f64, each: f64) -> (Racing, Vec<Run>) {
        tried(rates, failing, seconds, each, 1)
    }

    /// The same, where each step is tried so often until it counts.
    fn tried(rates: &[f64], failing: &[usize], seconds: f64, each: f64, tries: usize) -> (Racing, Vec<Run>) {
        let race = Race::new(&vec![true; rates.len()], 0, 0.05, &doubling_looks(3, 4)).unwrap();
        let ids = (0..rates.len()).map(|arm| (arm, format!("arm{arm}"))).collect();
        let workload: Workload = FioJob::first_seed(Bytes::from_kib(4), 1, 0).into();
        let mut racing = Racing::new(race, ids, workload, seconds, 1);
        let mut runs = Vec::new();
        while let Some(round) = racing.next(&runs, &mut |arms, random| random.shuffle(arms)).unwrap() {
            for (position, step) in round.steps.iter().enumerate() {
                let (arm, seed) = (step.arm, step.seed);
                let own = SplitMix::new(seed + arm as u64).next() % 100;
                let jitter = 1.0 + (seed % 7) as f64 / 100.0 + own as f64 / 5000.0;
                let metrics = Metric::new("iops", Unit::Iops, rates[arm] * jitter).into_iter().collect();
                runs.push(Run {
                    round: round.number,
                    position: position as u32,
                    purpose: step.purpose,
                    arm: format!("arm{arm}"),
                    count: 1,
                    workload: step.workload.clone(),
                    seed,
                    started: String::new(),
                    seconds: each,
                    outcome: match failing.contains(&arm) {
                        true => Outcome::Failed { why: "no".into() },
                        false => Outcome::Measured { metrics, notes: vec![] },
                    },
                    together: None,
                });
                let last = runs.len() - 1;
                for _ in 1..tries {
                    let outcome = Outcome::Failed { why: "a neighbour".into() };
                    let before = Run { outcome, ..runs[last].clone() };
                    runs.insert(last, before);
                }
            }
        }
        (racing, runs)
    }

    #[test]
    fn a_race_finds_the_best_and_keeps_its_time() {
        let rates = [1000.0, 1500.0, 2000.0, 1200.0, 900.0, 1100.0];
        let (racing, runs) = run(&rates, &[], 60.0);
        let race = racing.race();
        assert_eq!(race.leader(), Some(2));
        assert!(runs.len() <= 60, "{} runs of a second in 60 s", runs.len());
        assert!(race.fates().contains(&Fate::ShownWorse { look: 0, than: 2 }), "{:?}", race.fates());
        let (again, same) = run(&rates, &[], 60.0);
        assert_eq!((race.fates(), runs), (again.race().fates(), same), "the seed decides all");
    }

    #[test]
    fn a_round_has_one_seed_and_every_arm_once() {
        let (_, runs) = run(&[1000.0, 1001.0, 1002.0], &[], 200.0);
        for round in 0..3 {
            let of_round: Vec<_> = runs.iter().filter(|run| run.round == round).collect();
            let mut arms: Vec<_> = of_round.iter().map(|run| run.arm.as_str()).collect();
            arms.sort_unstable();
            assert_eq!(arms, ["arm0", "arm1", "arm2"]);
            assert!(of_round.iter().all(|run| run.seed == of_round[0].seed && run.seed < 1 << 31));
        }
    }

    #[test]
    fn a_failing_arm_is_withdrawn() {
        let (racing, _) = run(&[1000.0, 2000.0, 1500.0, 1600.0], &[3], 100.0);
        assert_eq!((racing.race().fates()[3], racing.race().leader()), (Fate::Withdrawn, Some(1)));
    }

    #[test]
    fn every_rung_to_come_has_an_equal_share_of_the_time_that_is_left() {
        // Six equal arms, runs of 2 s, looks after 3, 6, 12 and 24 rounds. The first rung takes 36 s of 112; of the 76 s left a
        // third is 12 runs, four arms for three rounds. They leave 52 s, half of it is 13 runs: two arms for six rounds. These
        // leave 28 s, and the 24 runs of the last rung take longer.
        let (racing, runs) = runs_of(&[1000.0; 6], &[], 112.0, 2.0);
        let arms = |round: u32| runs.iter().filter(|run| run.round == round).count();
        assert_eq!((0..13).map(arms).collect::<Vec<_>>(), [6, 6, 6, 4, 4, 4, 2, 2, 2, 2, 2, 2, 0]);
        for arm in 0..6 {
            let made = runs.iter().filter(|run| run.arm == format!("arm{arm}")).count();
            assert_eq!(racing.race().measured(arm), made, "an arm that was cut has the rounds it ran in, and no more");
        }
        let worse = racing.race().fates().iter().any(|fate| matches!(fate, Fate::ShownWorse { .. }));
        assert!(!worse, "equal arms are cut: {:?}", racing.race().fates());
        assert!(racing.notes().is_empty() && racing.total() == 0, "nobody knows beforehand how many runs it takes");
    }

    #[test]
    fn a_step_that_is_tried_twice_takes_the_time_of_both_tries() {
        let (once, runs) = runs_of(&[1000.0; 6], &[], 112.0, 2.0);
        let (twice, tries) = tried(&[1000.0; 6], &[], 112.0, 1.0, 2);
        assert_eq!((twice.race().fates(), tries.len()), (once.race().fates(), 2 * runs.len()));
    }

    #[test]
    fn a_rung_that_just_fits_is_run_and_one_that_does_not_is_left_out() {
        // Two arms, 24 rounds of 2 × 2 s.
        assert_eq!(runs_of(&[1000.0; 2], &[], 96.0, 2.0).1.len(), 48);
        assert_eq!(runs_of(&[1000.0; 2], &[], 95.0, 2.0).1.len(), 24);
    }
}
