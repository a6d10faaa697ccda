//! Ratios, raw samples and noise floors, in the units of the screen.

use nearmetal_report::view::{Bounds, ComparisonView, NoiseFloorView, RatioView, SampleSeries};
use nearmetal_results::{
    ArmName, CONFIDENCE, Comparison, Estimate, Purpose, Results, ResultsError, Run, compare, noise,
};
use nearmetal_stats::{Interval, IntervalKind, NoiseFloor, Pair, Verdict};

use super::metrics::Shown;

/// Every comparison of a shown quantity, in the order of the quantities.
pub(crate) fn views(results: &Results, shown: &[Shown]) -> Result<Vec<ComparisonView>, ResultsError> {
    let compared = compare(results)?;
    // Of what ran: with no sample of all at once that counts, nothing can be said of them, and fewer are no stand-in.
    let is_compared = |run: &&Run| matches!(run.purpose, Purpose::Pair | Purpose::Accesses | Purpose::SingleShot);
    let all = results.runs.iter().filter(is_compared).map(|run| run.count).max().unwrap_or(1);
    let of = |metric: &Shown| -> Vec<ComparisonView> {
        compared
            .iter()
            // Of several guests, all at once.
            .filter(|row| row.workload == metric.workload && row.metric == metric.name && row.count == all)
            .map(|row| view(row, metric))
            .collect()
    };
    Ok(shown.iter().flat_map(of).collect())
}

fn view(row: &Comparison, metric: &Shown) -> ComparisonView {
    let (subject, reference) = (row.subject.id.clone(), row.reference.id.clone());
    let mean = |side: fn(&Pair) -> f64| geometric_mean(row.pairs.iter().map(side)).map(|value| value * metric.scale);
    // Of several guests at once the arms are named in the plural.
    let number = |words: String| match row.count {
        1 => words,
        _ => words.replacen(" does ", " do ", 1).replacen(" takes ", " take ", 1),
    };
    let (ratio, interval, bootstrap, method, verdict) = match &row.estimate {
        Estimate::Paired { ratio, noise, verdict } => {
            let method = match ratio.recommended {
                IntervalKind::StudentT => "Student's t on log-ratios",
                IntervalKind::Bootstrap => "percentile bootstrap over pairs",
            };
            let words = number(words(*verdict, noise.is_some(), metric, &row.subject, &row.reference));
            (ratio.ratio, Some(bounds(ratio.interval())), Some(bounds(&ratio.bootstrap)), method, words)
        }
        Estimate::SingleShot { ratio } => {
            (*ratio, None, None, "none: measured once", "single shot: shown, nothing is claimed".to_owned())
        }
    };
    ComparisonView {
        metric: metric.view.id.clone(),
        subject,
        reference,
        n: row.pairs.len() as u32,
        subject_value: mean(|pair| pair.subject),
        reference_value: mean(|pair| pair.reference),
        ratio: Some(ratio),
        interval,
        confidence: CONFIDENCE,
        method: method.to_owned(),
        bootstrap,
        pair_ratios: row.pairs.iter().map(|pair| pair.subject / pair.reference).collect(),
        verdict,
        single_shot: matches!(row.estimate, Estimate::SingleShot { .. }),
    }
}

/// The ratio of a paired estimate.
pub(super) fn ratio_of(estimate: &Estimate) -> Option<RatioView> {
    match estimate {
        Estimate::Paired { ratio, .. } => Some(ratio.into()),
        Estimate::SingleShot { .. } => None,
    }
}

/// Whether its difference may be claimed.
pub(super) fn is_beyond_noise(estimate: &Estimate) -> bool {
    matches!(estimate, Estimate::Paired { verdict: Verdict::Faster | Verdict::Slower, .. })
}

fn bounds(interval: &Interval) -> Bounds {
    Bounds { low: interval.low, high: interval.high }
}

/// The mean that belongs to ratios: of the logarithms.
pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = values.map(f64::ln).collect();
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    mean.is_finite().then(|| mean.exp())
}

/// What may be claimed. Faster is the better one, of rates and of times.
fn words(verdict: Verdict, control: bool, metric: &Shown, subject: &ArmName, reference: &ArmName) -> String {
    let (faster, slower) = match (metric.view.higher_is_better, metric.name.as_str()) {
        (_, "locality.local-share") => ("stays on its node more than", "stays on its node less than"),
        (_, "locality.mean-distance") => ("reaches less far than", "reaches further than"),
        (_, "work.instructions") => ("executes less than", "executes more than"),
        (_, "modelled.ns") => ("would take less time than", "would take longer than"),
        (true, _) => ("does more than", "does less than"),
        (false, name) if name == "cpu" || name.ends_with(".cpu") || name.ends_with("cpu.host") => {
            ("takes less CPU time than", "takes more CPU time than")
        }
        (false, _) => ("takes less time than", "takes longer than"),
    };
    let (subject, reference) = (&subject.title, &reference.title);
    let beyond =
        if control { ", beyond the noise floor" } else { "; no A/A pairs, so no noise floor to hold it against" };
    match verdict {
        Verdict::Faster => format!("{subject} {faster} {reference}{beyond}"),
        Verdict::Slower => format!("{subject} {slower} {reference}{beyond}"),
        Verdict::NoDifferenceShown => "no difference shown: the interval lies within the noise floor".to_owned(),
        Verdict::NotResolved if control => {
            "not resolved: the interval reaches across an edge of the noise floor".to_owned()
        }
        Verdict::NotResolved => "not resolved: the interval includes 1".to_owned(),
    }
}

/// Raw values by arm and quantity, in the order measured, A/A runs among them.
pub(crate) fn samples(results: &Results, shown: &[Shown]) -> Vec<SampleSeries> {
    let mut series = Vec::new();
    for metric in shown {
        for arm in &results.arms {
            let runs = results.runs.iter().filter(|run| run.arm == arm.name.id && run.workload == metric.workload);
            let values: Vec<f64> =
                runs.filter_map(|run| run.value(&metric.name)).map(|found| found.value * metric.scale).collect();
            if !values.is_empty() {
                series.push(SampleSeries {
                    arm: arm.name.id.clone(),
                    metric: metric.view.id.clone(),
                    unit: metric.view.unit.clone(),
                    values,
                });
            }
        }
    }
    series
}

/// One floor a quantity: the widest of the arms that were measured against themselves.
pub(crate) fn floors(results: &Results, shown: &[Shown]) -> Vec<NoiseFloorView> {
    let widest = |metric: &Shown| -> Option<NoiseFloorView> {
        let arms = results.arms.iter().filter_map(|arm| noise(results, &metric.workload, &metric.name, &arm.name.id));
        let floor = arms.max_by(|left, right| left.factor().total_cmp(&right.factor()))?;
        Some(floor_view(&floor, &metric.view.id))
    };
    let controlled = results.runs.iter().any(|run| run.purpose == Purpose::SameArm);
    if controlled { shown.iter().filter_map(widest).collect() } else { Vec::new() }
}

fn floor_view(floor: &NoiseFloor, metric: &str) -> NoiseFloorView {
    let factor = floor.factor();
    NoiseFloorView {
        metric: metric.to_owned(),
        n: floor.n as u32,
        ratio: Some(floor.ratio),
        bounds: Some(Bounds { low: factor.recip(), high: factor }),
    }
}
