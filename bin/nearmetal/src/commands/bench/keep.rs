//! Where the results of a comparison go, and what is printed of them.

use std::path::PathBuf;

use nearmetal_measure::{
    Comparison, Environment, Estimate, Order, Results, Store, Workload, compare, cost_table, cost_text,
    costs_of_guests, lift_text,
};
use nearmetal_stats::ShownRatio;

use super::measuring::written;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Where all runs go.
#[derive(Debug, clap::Args)]
pub(super) struct KeepArgs {
    /// Write all runs here as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Add all runs to this SQLite store
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// Writes the results where they were asked for, and shows the ratios.
pub(super) fn keep(args: &KeepArgs, results: &Results, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    written(results, args.output.as_deref())?;
    if let Some(path) = &args.store {
        Store::open(path)?.add(results)?;
    }
    printer.data(&text(results, &compare(results)?));
    let costs = cost_table(results);
    if !costs.is_empty() {
        let lifts = lift_text(&costs_of_guests(&costs));
        printer.data(&format!("where the time goes, for each I/O:\n{}{lifts}", cost_text(&costs)));
    }
    Ok(ExitStatus::Done)
}

/// One line a comparison: the ratio with its interval, and what may be said.
fn text(results: &Results, comparisons: &[Comparison]) -> String {
    let mut text = String::new();
    if let Environment::Lab { machine } = &results.environment {
        text.push_str(&format!("lab: emulated time (machine {machine}); compare arms, not machines\n"));
    }
    for comparison in comparisons.iter().filter(|comparison| is_shown(comparison)) {
        let pair = format!("{} / {}", comparison.subject.title(), comparison.reference.title());
        let figure = match &comparison.estimate {
            Estimate::Paired { ratio, verdict, .. } => format!("{ratio}, n = {}, {verdict}", ratio.n),
            Estimate::SingleShot { ratio } => format!("{}, single shot", ShownRatio::new(*ratio, None)),
        };
        let mut what = comparison.workload.label();
        if comparison.metric != "iops" {
            what.push_str(&format!(": {}", metric_title(&comparison.metric)));
        }
        text.push_str(&format!("{what:44} {pair:28} {figure}\n"));
    }
    for caveat in &results.caveats {
        text.push_str(&format!("note: {caveat}\n"));
    }
    text
}

/// Rates and medians; every step of a set; processor time where it was asked for, with sequential requests.
fn is_shown(comparison: &Comparison) -> bool {
    let sequential = matches!(&comparison.workload, Workload::Fio(job) if job.order == Order::Sequential);
    let metric = comparison.metric.as_str();
    metric.starts_with("iops") || metric == "latency.median" || (sequential && matches!(metric, "cpu" | "cpu.host"))
}

fn metric_title(metric: &str) -> String {
    match metric {
        "cpu" => "fio's processor time per request".to_owned(),
        "cpu.host" => "the host's processor time per request".to_owned(),
        other => other.strip_prefix("iops.").unwrap_or(other).to_owned(),
    }
}
