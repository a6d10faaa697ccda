//! `nearmetal bench history` for programs: what was measured, with the ratios that came of it.

use nearmetal_results::{Comparison, Entry, Estimate, State, Store, compare};

use crate::job::outputs::{HISTORY_SCHEMA, HistoryOutput, MeasurementOutput, RatioOutput};
use crate::results_store::FromArgs;

/// Reads the store. One that is not there yet has no measurements.
///
/// # Errors
/// What the store says.
pub(super) fn read(from: &FromArgs, domain: Option<&str>) -> anyhow::Result<HistoryOutput> {
    let mut measurements = Vec::new();
    if from.path().exists() {
        let store = from.open()?;
        measurements.extend(store.entries(domain)?.into_iter().map(|entry| measurement(entry, &store)));
    }
    Ok(HistoryOutput { schema: HISTORY_SCHEMA.to_owned(), measurements })
}

fn measurement(entry: Entry, store: &Store) -> MeasurementOutput {
    // What is still measured, or failed before its first pair, has no ratios yet; that is no reason to hide the others.
    let compared = store.results(entry.id).ok().and_then(|results| compare(&results).ok());
    let (state, problem) = match entry.state {
        State::Done => ("done", None),
        State::Failed(why) => ("failed", Some(why)),
        State::Running => ("running", None),
    };
    MeasurementOutput {
        id: entry.id,
        experiment: entry.experiment,
        guests: entry.guests,
        created: entry.created,
        nearmetal: entry.version,
        environment: entry.environment,
        kernel: entry.kernel,
        qemu: entry.qemu,
        device: entry.device,
        plan: entry.plan,
        state: state.to_owned(),
        problem,
        winner: entry.winner,
        runs: entry.runs,
        ratios: compared.map(|all| all.iter().filter(|one| is_rate(one)).map(ratio).collect()),
    }
}

fn is_rate(comparison: &Comparison) -> bool {
    Some(&comparison.metric) == comparison.workload.rate().as_ref()
}

fn ratio(comparison: &Comparison) -> RatioOutput {
    let (ratio, interval, pairs, verdict) = match &comparison.estimate {
        Estimate::Paired { ratio, verdict, .. } => {
            (ratio.ratio, Some(ratio.interval()), ratio.n, Some(verdict.to_string()))
        }
        Estimate::SingleShot { ratio } => (*ratio, None, 1, None),
    };
    RatioOutput {
        workload: comparison.workload.label(),
        count: comparison.count,
        subject: comparison.subject.title.clone(),
        reference: comparison.reference.title.clone(),
        ratio,
        low: interval.map(|interval| interval.low),
        high: interval.map(|interval| interval.high),
        pairs,
        verdict,
    }
}
