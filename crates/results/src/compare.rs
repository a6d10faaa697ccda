//! From runs to ratios: arms of one round are paired, and nothing else ever is.

use nearmetal_load::{Compared, Unit, Workload};
use nearmetal_stats::{NoiseFloor, Pair, RatioEstimate, Verdict, noise_floor, ratio, verdict};

use crate::arm::{ArmName, against};
use crate::error::ResultsError;
use crate::results::{Purpose, Results, Run};

/// The confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// One arm against another in one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Workload.
    pub workload: Workload,
    /// Tenants at once.
    pub count: usize,
    /// Metric name.
    pub metric: String,
    /// Unit.
    pub unit: Unit,
    /// The arm in the numerator.
    pub subject: ArmName,
    /// The arm in the denominator.
    pub reference: ArmName,
    /// The pairs, in the order of rounds.
    pub pairs: Vec<Pair>,
    /// The figure.
    pub estimate: Estimate,
}

/// A ratio with an interval where there are pairs, without one where there was a single run a side.
#[derive(Debug, Clone, PartialEq)]
pub enum Estimate {
    /// At least two pairs.
    Paired {
        /// Ratio and intervals.
        ratio: RatioEstimate,
        /// The wider of the noise floors of the two arms, where A/A pairs were run.
        noise: Option<NoiseFloor>,
        /// What may be said.
        verdict: Verdict,
    },
    /// One run a side: shown, never claimed.
    SingleShot {
        /// Subject over reference.
        ratio: f64,
    },
}

/// The pairs of a metric: (subject, reference) values of the same round.
pub fn pairs_of_runs(runs: &[&Run], metric: &str, subject: &str, reference: &str) -> Vec<Pair> {
    // The last of an arm counts: one that failed may have been run again.
    let value = |round: u32, arm: &str| {
        let of = runs.iter().rev().filter(|run| run.round == round && run.arm == arm);
        of.filter_map(|run| run.value(metric)).map(|metric| metric.value).next()
    };
    let mut rounds: Vec<u32> = runs.iter().map(|run| run.round).collect();
    rounds.dedup();
    rounds
        .into_iter()
        .filter_map(|round| Some(Pair { subject: value(round, subject)?, reference: value(round, reference)? }))
        .collect()
}

/// Whether two arms are compared in a metric.
fn may_be_compared(compared: Compared, runs: &[&Run], metric: &str, arms: [&ArmName; 2]) -> bool {
    let measured = |run: &&&Run| run.failure().is_none() && arms.iter().any(|arm| arm.id == run.arm);
    match compared {
        Compared::ByRound => true,
        Compared::IfInEveryRound => runs.iter().filter(measured).all(|run| run.value(metric).is_some()),
        Compared::Never => false,
    }
}

/// What was run once in each of two arms.
fn once(runs: &[&Run], metric: &str, subject: &str, reference: &str) -> Option<Pair> {
    let value = |arm: &str| runs.iter().rev().filter(|run| run.arm == arm).find_map(|run| run.value(metric));
    Some(Pair { subject: value(subject)?.value, reference: value(reference)?.value })
}

/// The noise floor of one arm: its A/A pairs. `None` with fewer than two.
pub fn noise(results: &Results, workload: &Workload, metric: &str, arm: &str) -> Option<NoiseFloor> {
    let of = |run: &&Run| run.purpose == Purpose::SameArm && run.arm == arm && run.workload == *workload;
    let runs: Vec<&Run> = results.runs.iter().filter(of).collect();
    let mut rounds: Vec<u32> = runs.iter().map(|run| run.round).collect();
    rounds.dedup();
    let pairs: Vec<Pair> = rounds
        .into_iter()
        .filter_map(|round| {
            let mut values = runs.iter().filter(|run| run.round == round).filter_map(|run| run.value(metric));
            Some(Pair { subject: values.next()?.value, reference: values.next()?.value })
        })
        .collect();
    noise_floor(&pairs, CONFIDENCE).ok()
}

/// Every comparison the runs allow, paired ones first; of several tenants, fewest at once first.
pub fn compare(results: &Results) -> Result<Vec<Comparison>, ResultsError> {
    let names: Vec<ArmName> = results.arms.iter().map(|arm| arm.name.clone()).collect();
    let against = against(&names);
    let mut comparisons = Vec::new();
    for purpose in [Purpose::Pair, Purpose::Accesses, Purpose::SingleShot] {
        let runs: Vec<&Run> = results.runs.iter().filter(|run| run.purpose == purpose).collect();
        let mut seen: Vec<(usize, &Workload)> = Vec::new();
        for run in &runs {
            if !seen.contains(&(run.count, &run.workload)) {
                seen.push((run.count, &run.workload));
            }
        }
        // Workloads keep the order in which they first ran; counts are drawn at random.
        seen.sort_by_key(|(count, _)| *count);
        for (count, workload) in seen {
            let of = |run: &&Run| run.workload == *workload && run.count == count;
            let of: Vec<&Run> = runs.iter().copied().filter(of).collect();
            for (metric, unit) in metrics(&of) {
                let compared = workload.load().compared(&metric);
                for (subject, reference) in &against {
                    let (subject, reference) = (&names[*subject], &names[*reference]);
                    if !may_be_compared(compared, &of, &metric, [subject, reference]) {
                        continue;
                    }
                    let pairs = match purpose {
                        Purpose::SingleShot => once(&of, &metric, &subject.id, &reference.id).into_iter().collect(),
                        _ => pairs_of_runs(&of, &metric, &subject.id, &reference.id),
                    };
                    let Some(estimate) = estimate(results, (workload, &metric, unit), subject, reference, &pairs)?
                    else {
                        continue;
                    };
                    comparisons.push(Comparison {
                        workload: workload.clone(),
                        count,
                        metric: metric.clone(),
                        unit,
                        subject: subject.clone(),
                        reference: reference.clone(),
                        pairs,
                        estimate,
                    });
                }
            }
        }
    }
    Ok(comparisons)
}

fn metrics(runs: &[&Run]) -> Vec<(String, Unit)> {
    let mut metrics: Vec<(String, Unit)> = Vec::new();
    // Costs say where the time goes: many are rightly 0, and none is claimed as a ratio.
    let all = runs.iter().flat_map(|run| run.metrics());
    for metric in all.filter(|metric| !metric.is_cost()) {
        if !metrics.iter().any(|(name, _)| *name == metric.name) {
            metrics.push((metric.name.clone(), metric.unit));
        }
    }
    metrics
}

fn estimate(
    results: &Results,
    (workload, metric, unit): (&Workload, &str, Unit),
    subject: &ArmName,
    reference: &ArmName,
    pairs: &[Pair],
) -> Result<Option<Estimate>, ResultsError> {
    Ok(match pairs {
        [] => None,
        [pair] => Some(Estimate::SingleShot { ratio: pair.subject / pair.reference }),
        _ => {
            let ratio = ratio(pairs, CONFIDENCE, results.seed)?;
            // The noise of a ratio is at least that of its noisier side.
            let noise = [subject, reference]
                .into_iter()
                .filter_map(|arm| noise(results, workload, metric, &arm.id))
                .max_by(|left, right| left.factor().total_cmp(&right.factor()));
            let verdict = verdict(&ratio, noise.as_ref());
            let verdict = if unit.higher_is_better() { verdict } else { verdict.of_times() };
            Some(Estimate::Paired { ratio, noise, verdict })
        }
    })
}

#[cfg(test)]
mod tests {

    use nearmetal_load::{Metric, OltpJob};

    use super::*;
    use crate::results::Outcome;
    use crate::samples::sample_results;

    #[test]
    fn arms_are_paired_within_rounds_and_single_shots_have_no_interval() {
        let comparisons = compare(&sample_results()).unwrap();
        let [paired, single] = comparisons.as_slice() else { panic!("{comparisons:#?}") };
        assert_eq!((paired.subject.id.as_str(), paired.reference.id.as_str()), ("planned", "bare-slice"));
        let Estimate::Paired { ratio, noise, .. } = &paired.estimate else { panic!() };
        let expected = ((500.0f64 / 1000.0).ln() + (540.0f64 / 1100.0).ln() + (460.0f64 / 900.0).ln()) / 3.0;
        assert!((ratio.ratio - expected.exp()).abs() < 1e-12);
        assert_eq!(ratio.n, 3);
        assert!(noise.is_some(), "the A/A pairs of bare metal give a floor");
        assert_eq!(single.estimate, Estimate::SingleShot { ratio: 0.4 });
    }

    /// Three rounds of a database that was offered parts of bare metal's rate; the planned guest fell behind at 90 % in one.
    fn offered() -> Results {
        let workload = Workload::from(OltpJob::small()).load().at_parts_of(100.0).unwrap();
        let mut results = sample_results();
        let model = results.runs[0].clone();
        results.runs = Vec::new();
        for round in 0..3u32 {
            for arm in [ArmName::bare_slice(), ArmName::planned()] {
                let behind = round == 1 && arm == ArmName::planned();
                let mut metrics = Vec::new();
                for at in [50, 90] {
                    let rate = f64::from(at) - if behind { 10.0 } else { 0.0 };
                    metrics.extend(Metric::new(&format!("transactions.at-{at}"), Unit::TransactionsPerSecond, rate));
                    let time = (at == 50 || !behind).then_some(1e6 + f64::from(round));
                    let name = format!("latency.p99.at-{at}");
                    metrics.extend(time.and_then(|time| Metric::new(&name, Unit::Nanoseconds, time)));
                }
                let outcome = Outcome::Measured { metrics, notes: vec![] };
                let (purpose, workload) = (Purpose::Pair, workload.clone());
                results.runs.push(Run { round, purpose, arm: arm.id, workload, outcome, ..model.clone() });
            }
        }
        results
    }

    #[test]
    fn times_of_an_arm_that_fell_behind_in_a_round_are_not_compared_and_what_was_offered_never_is() {
        let names = |results: &Results| -> Vec<String> {
            compare(results).unwrap().into_iter().map(|comparison| comparison.metric).collect()
        };
        let mut results = offered();
        assert_eq!(names(&results), ["latency.p99.at-50"]);
        // A sample that failed and was run again is no round in which it fell behind.
        let behind = results.runs.iter().position(|run| run.value("latency.p99.at-90").is_none()).unwrap();
        results.runs[behind].outcome = Outcome::Failed { why: "x".into() };
        assert_eq!(names(&results), ["latency.p99.at-50", "latency.p99.at-90"]);
    }

    #[test]
    fn a_failed_run_drops_its_pair_and_nothing_else() {
        let mut results = sample_results();
        results.runs[1].outcome = crate::results::Outcome::Failed { why: "x".into() };
        let comparisons = compare(&results).unwrap();
        let Estimate::Paired { ratio, .. } = &comparisons[0].estimate else { panic!() };
        assert_eq!(ratio.n, 2);
    }
}
