//! A comparison for people: the ratios, what may be said of them, where the time goes. For every experiment with pairs, of
//! one guest or of several at once.

use nearmetal_load::{Order, Unit, Workload};
use nearmetal_report::view::IncompleteArm;
use nearmetal_results::{
    Comparison, Environment, Estimate, Purpose, Results, ResultsError, compare, cost_table, cost_text, costs_of_guests,
    lift_text,
};
use nearmetal_stats::{ShownRatio, Verdict};

/// A figure from this part of the ceiling on may be the other end's, not the guests'.
pub(super) const BOUND: f64 = nearmetal_results::PEER_BOUND;

/// The experiments with several tenants, by their words.
pub(super) const TOGETHER: &str = "together";
pub(super) const MODES: &str = "modes";

/// The whole text.
///
/// # Errors
/// Values that give no ratio.
pub(crate) fn text(results: &Results) -> Result<String, ResultsError> {
    let mut text = String::new();
    if let Environment::Lab { machine } = &results.environment {
        text.push_str(&format!("lab: emulated time (machine {machine}); compare arms, not machines\n"));
    }
    let several = results.tenants.len() > 1;
    let comparisons: Vec<Comparison> = compare(results)?.into_iter().filter(is_shown).collect();
    let ceiling = if several { ceiling(results) } else { None };
    if let Some((rate, unit)) = ceiling {
        let count = results.tenants.len();
        text.push_str(&format!(
            "the ceiling: {} with {count} at once on all PUs, without a guest\n",
            shown(rate, unit)
        ));
    }
    for comparison in &comparisons {
        let what = several.then_some(if results.experiment == MODES { "nodes: " } else { "" });
        text.push_str(&line(comparison, what, ceiling.map(|(rate, _)| rate)));
    }
    if several && results.experiment == TOGETHER {
        text.push_str(&scaling(&comparisons));
    }
    if several {
        text.push_str(&side_by_side(results));
        if comparisons.is_empty() && results.tiles.is_none() {
            text.push_str("no ratio: fewer than two pairs count\n");
        }
    }
    for IncompleteArm { arm, failed, samples, why } in super::arms::incomplete(results) {
        text.push_str(&format!("the arm `{arm}` is incomplete: {failed} of {samples} samples failed: {why}\n"));
    }
    for caveat in &results.caveats {
        text.push_str(&format!("note: {caveat}\n"));
    }
    let costs = cost_table(results);
    if !costs.is_empty() {
        let lifts = lift_text(&costs_of_guests(&costs));
        text.push_str(&format!("where the time goes:\n{}{lifts}", cost_text(&costs)));
    }
    Ok(text)
}

/// One line a comparison: the ratio with its interval, and what may be said. `several`: what the number of tenants is followed
/// by, where there are several.
fn line(comparison: &Comparison, several: Option<&str>, ceiling: Option<f64>) -> String {
    let count = comparison.count;
    let (subject, reference) = (&comparison.subject.title, &comparison.reference.title);
    let pair = match several {
        None => format!("{subject} / {reference}"),
        Some("") => format!("{count} {subject} / {count} {reference}"),
        Some(what) => format!("{count} {what}{subject} / {reference}"),
    };
    let mut figure = match &comparison.estimate {
        Estimate::Paired { ratio, verdict, .. } => {
            format!("{ratio}, n = {}, {}", ratio.n, word(*verdict, &comparison.metric))
        }
        Estimate::SingleShot { ratio } => format!("{}, single shot", ShownRatio::new(*ratio, None)),
    };
    if several.is_some() {
        let (subject, reference) = means(comparison);
        let bound = if ceiling.is_some_and(|ceiling| subject >= BOUND * ceiling) { ", peer-bound" } else { "" };
        let (subject, reference) = (shown(subject, comparison.unit), shown(reference, comparison.unit));
        figure.push_str(&format!("; {subject} / {reference} together{bound}"));
    }
    let mut what = comparison.workload.label();
    if Some(&comparison.metric) != comparison.workload.rate().as_ref() {
        what.push_str(&format!(": {}", metric_title(&comparison.metric, comparison.workload.each())));
    }
    format!("{what:44} {pair:28} {figure}\n")
}

/// A verdict in a word that fits what was compared: instructions are not faster, but fewer.
fn word(verdict: Verdict, metric: &str) -> String {
    let (better, worse) = match metric {
        "work.instructions" => ("fewer", "more"),
        "modelled.ns" => ("less", "more"),
        "locality.local-share" => ("more local", "less local"),
        "locality.mean-distance" => ("nearer", "farther"),
        _ => return verdict.to_string(),
    };
    match verdict {
        Verdict::Faster => better.to_owned(),
        Verdict::Slower => worse.to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn means(comparison: &Comparison) -> (f64, f64) {
    let mean = |value: fn(&nearmetal_stats::Pair) -> f64| {
        comparison.pairs.iter().map(value).sum::<f64>() / comparison.pairs.len().max(1) as f64
    };
    (mean(|pair| pair.subject), mean(|pair| pair.reference))
}

/// A rate in words.
fn shown(rate: f64, unit: Unit) -> String {
    match unit {
        Unit::BitsPerSecond => format!("{:.1} Mbit/s", rate / 1e6),
        Unit::Share => format!("{:.1} %", rate * 100.0),
        Unit::ModelledNanoseconds => format!("{rate:.0} ns"),
        Unit::Distance | Unit::PerLoad => format!("{rate:.2} {}", unit.symbol()),
        unit => format!("{rate:.0} {}", unit.symbol()),
    }
}

/// The median of what the machine and the other end did without slices.
pub(super) fn ceiling(results: &Results) -> Option<(f64, Unit)> {
    let runs = results.runs.iter().filter(|run| run.purpose == Purpose::Ceiling);
    let metrics: Vec<_> = runs.filter_map(|run| run.value(&run.workload.rate()?)).collect();
    let sample = nearmetal_stats::Sample::new(metrics.iter().map(|metric| metric.value).collect()).ok()?;
    Some((sample.median(), metrics.first()?.unit))
}

/// How much more several do than one.
fn scaling(comparisons: &[Comparison]) -> String {
    let rates = || comparisons.iter().filter(|one| Some(&one.metric) == one.workload.rate().as_ref());
    let Some(first) = rates().find(|one| one.count == 1).map(means) else { return String::new() };
    let line = |one: &Comparison| {
        let (subject, reference) = means(one);
        format!(
            "{} at once do {:.2} times what one does: {}; {:.2} times: {} (means, no interval)\n",
            one.count,
            subject / first.0,
            one.subject.title,
            reference / first.1,
            one.reference.title
        )
    };
    rates().filter(|one| one.count > 1).map(line).collect()
}

/// How far they ran side by side, and what does not count for it.
fn side_by_side(results: &Results) -> String {
    let counted = results.runs.iter().filter(|run| run.failure().is_none()).filter_map(|run| run.together.as_ref());
    let least = counted.clone().map(|together| together.overlap).fold(f64::INFINITY, f64::min);
    let clocks = counted.map(|together| together.clocks_within).fold(0.0, f64::max);
    let mut text = String::new();
    if least.is_finite() {
        text.push_str(&format!(
            "overlap: {:.0} % or more of every sample that counts, {:.0} % is the limit; clocks known to {clocks:.1} ms\n",
            least * 100.0,
            results.least_overlap.unwrap_or(0.0) * 100.0
        ));
    }
    text
}

/// Rates and medians; every step of a set; processor time where it was asked for, with sequential requests.
fn is_shown(comparison: &Comparison) -> bool {
    let sequential = matches!(&comparison.workload, Workload::Fio(job) if job.order == Order::Sequential);
    let metric = comparison.metric.as_str();
    Some(metric) == comparison.workload.rate().as_deref()
        || metric.starts_with("iops")
        || metric == "latency.median"
        || metric.starts_with("latency.") && metric.contains(".at-")
        || metric.starts_with("work.")
        || metric.starts_with("locality.")
        || metric.starts_with("modelled.")
        || (sequential && matches!(metric, "cpu" | "cpu.host"))
}

fn metric_title(metric: &str, each: &str) -> String {
    match metric {
        "work.instructions" if each == "load" => "instructions per load".to_owned(),
        "cpu" => "fio's processor time per request".to_owned(),
        "cpu.host" => "the host's processor time per request".to_owned(),
        "work.instructions" => "instructions per request".to_owned(),
        "locality.local-share" => "accesses that stay on their node".to_owned(),
        "locality.mean-distance" => "mean distance of an access".to_owned(),
        "modelled.ns" => format!("modelled time per {}", if each == "load" { each } else { "request" }),
        other => other.strip_prefix("iops.").unwrap_or(other).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_fits_what_was_compared() {
        assert_eq!(word(Verdict::Faster, "iops"), "faster");
        assert_eq!(word(Verdict::Faster, "work.instructions"), "fewer");
        assert_eq!(word(Verdict::Slower, "locality.local-share"), "less local");
        assert_eq!(word(Verdict::NotResolved, "locality.mean-distance"), "not resolved");
    }
}
