//! Carrying out a race: rounds in random order until it is over or its time is. Knows only the [`Track`].

use std::time::Instant;

use nearmetal_stats::Race;
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;
use crate::experiment::{GIVE_UP_AFTER, Measured, chain};
use crate::results::Outcome;
use crate::schedule::SplitMix;

/// What decides the race.
pub(crate) const METRIC: &str = "iops";

/// Runs one arm once.
pub(crate) trait Track {
    /// One sample; all other arms are idle meanwhile.
    fn run(&mut self, arm: usize, seed: u64) -> Result<Measured, MeasureError>;

    /// Name of the metric that decides.
    fn metric(&self) -> String {
        METRIC.to_owned()
    }

    /// Puts the arms of a round in the order they run: at random, unless some share what has to be made first.
    fn arrange(&mut self, order: &mut Vec<usize>, random: &mut SplitMix) {
        random.shuffle(order);
    }
}

/// One run of one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Round, from 0: its runs belong together.
    pub round: u32,
    /// Position inside the round, drawn at random.
    pub position: u32,
    /// Number of the arm.
    pub arm: usize,
    /// Seed of the workload: one per round.
    pub seed: u64,
    /// RFC 3339, UTC.
    pub started: String,
    /// Wall seconds, flushing included.
    pub seconds: f64,
    /// What came of it.
    pub outcome: Outcome,
}

impl Turn {
    /// The value that decides a disk's race, if it has one.
    pub fn value(&self) -> Option<f64> {
        self.value_of(METRIC)
    }

    /// The value of a metric, if it has one.
    pub(crate) fn value_of(&self, metric: &str) -> Option<f64> {
        match &self.outcome {
            Outcome::Measured { metrics, .. } => {
                metrics.iter().find(|found| found.name == metric).map(|found| found.value)
            }
            Outcome::Failed { .. } => None,
        }
    }
}

/// Runs a race within `seconds` by `clock` (seconds since it began), and gives every run. `progress` hears of each turn.
///
/// # Errors
/// Four runs in a row failed.
pub(crate) fn contest(
    race: &mut Race,
    seed: u64,
    seconds: f64,
    clock: &mut dyn FnMut() -> f64,
    track: &mut dyn Track,
    progress: &mut dyn FnMut(u32, usize, usize),
) -> Result<Vec<Turn>, MeasureError> {
    let mut random = SplitMix::new(seed);
    let metric = track.metric();
    let mut turns: Vec<Turn> = Vec::new();
    let mut failures = 0;
    while !race.is_over() {
        while race.rounds_to_look() > 0 {
            let mut order = race.next_round();
            track.arrange(&mut order, &mut random);
            // fio takes a positive 32-bit seed on every version.
            let seed = (random.next() >> 33) | 1;
            let round = race.rounds();
            let mut values = Vec::with_capacity(order.len());
            for (position, arm) in order.iter().enumerate() {
                progress(round, *arm, order.len());
                let (started, began) = (nearmetal_change::timestamp::now(), Instant::now());
                let outcome = match track.run(*arm, seed) {
                    Ok(Measured { metrics, notes }) => Outcome::Measured { metrics, notes },
                    Err(error) if failures + 1 >= GIVE_UP_AFTER => return Err(error),
                    Err(error) => Outcome::Failed { why: chain(&error) },
                };
                let seconds = began.elapsed().as_secs_f64();
                let turn = Turn { round, position: position as u32, arm: *arm, seed, started, seconds, outcome };
                let value = turn.value_of(&metric);
                failures = if value.is_some() { 0 } else { failures + 1 };
                values.push((*arm, value));
                turns.push(turn);
            }
            race.record(&values)?;
        }
        // Successive halving: what is left of the time is shared equally among the rungs to come.
        let per_run = clock() / turns.len().max(1) as f64;
        let rungs = race.looks_left().saturating_sub(1).max(1) as f64;
        let affordable = if per_run > 0.0 { ((seconds - clock()).max(0.0) / rungs / per_run) as u64 } else { u64::MAX };
        race.look(affordable);
        let all = ((seconds - clock()).max(0.0) / per_run.max(f64::MIN_POSITIVE)) as u64;
        if race.next_round().len() as u64 * u64::from(race.rounds_to_look()) > all {
            break;
        }
    }
    Ok(turns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{Metric, Unit};
    use nearmetal_stats::{Fate, doubling_looks};

    /// Arms with fixed rates, each a little different every time; some fail.
    struct Simulated {
        rates: Vec<f64>,
        failing: Vec<usize>,
        seeds: Vec<u64>,
    }

    impl Track for Simulated {
        fn run(&mut self, arm: usize, seed: u64) -> Result<Measured, MeasureError> {
            self.seeds.push(seed);
            if self.failing.contains(&arm) {
                return Err(MeasureError::Unfit("no".into()));
            }
            let jitter = 1.0 + (seed % 7) as f64 / 100.0 + ((seed / 7 + arm as u64) % 5) as f64 / 200.0;
            let metrics = Metric::new(METRIC, Unit::Iops, self.rates[arm] * jitter).into_iter().collect();
            Ok(Measured { metrics, notes: vec![] })
        }
    }

    fn run(rates: &[f64], failing: &[usize], seconds: f64) -> (Race, Result<Vec<Turn>, MeasureError>, Vec<u64>) {
        let mut race = Race::new(&vec![true; rates.len()], 0, 0.05, &doubling_looks(3, 4)).unwrap();
        let mut track = Simulated { rates: rates.to_vec(), failing: failing.to_vec(), seeds: vec![] };
        let now = std::cell::Cell::new(0.0);
        // A second a run, as the clock has it.
        let result =
            contest(&mut race, 1, seconds, &mut || now.get(), &mut track, &mut |_, _, _| now.set(now.get() + 1.0));
        (race, result, track.seeds)
    }

    #[test]
    fn a_race_finds_the_best_and_keeps_its_time() {
        let rates = [1000.0, 1500.0, 2000.0, 1200.0, 900.0, 1100.0];
        let (race, turns, _) = run(&rates, &[], 60.0);
        let turns = turns.unwrap();
        assert_eq!(race.leader(), Some(2));
        assert!(turns.len() <= 60, "{} runs of a second in 60 s", turns.len());
        assert!(race.fates().contains(&Fate::ShownWorse { look: 0, than: 2 }), "{:?}", race.fates());
        let (again, same, _) = run(&rates, &[], 60.0);
        let arms = |turns: &[Turn]| turns.iter().map(|turn| (turn.round, turn.arm, turn.seed)).collect::<Vec<_>>();
        assert_eq!((race.fates(), arms(&turns)), (again.fates(), arms(&same.unwrap())), "the seed decides all");
    }

    #[test]
    fn a_round_has_one_seed_and_every_arm_once() {
        let (_, turns, seeds) = run(&[1000.0, 1001.0, 1002.0], &[], 200.0);
        let turns = turns.unwrap();
        for round in 0..3 {
            let of_round: Vec<_> = turns.iter().filter(|turn| turn.round == round).collect();
            let mut arms: Vec<_> = of_round.iter().map(|turn| turn.arm).collect();
            arms.sort_unstable();
            assert_eq!(arms, [0, 1, 2]);
            assert!(of_round.iter().all(|turn| turn.seed == of_round[0].seed && turn.seed < 1 << 31));
        }
        assert_eq!(seeds.len(), turns.len());
    }

    #[test]
    fn a_failing_arm_is_withdrawn_and_a_broken_machine_ends_the_race() {
        let (race, turns, _) = run(&[1000.0, 2000.0, 1500.0, 1600.0], &[3], 100.0);
        assert!(turns.is_ok());
        assert_eq!((race.fates()[3], race.leader()), (Fate::Withdrawn, Some(1)));
        let (_, turns, _) = run(&[1000.0, 2000.0], &[0, 1], 100.0);
        assert!(turns.is_err());
    }
}
