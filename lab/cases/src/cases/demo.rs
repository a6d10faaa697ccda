//! `nearmetal demo`, run on this host against the shared lab: the way a stranger first meets the program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use nearmetal_host::files;
use nearmetal_report::{Summary, summary_violations};

use super::{Case, Verdict, shared};
use crate::context::{Bench, programs};

pub(super) fn cases() -> Vec<Case> {
    vec![shared("demo/short-ends-in-a-report-and-a-lab-as-it-was", short)]
}

/// What the demo borrows beside the guest: its own directory, the journal, and file systems of counters.
const BORROWED: &str =
    "ls -d /root/nearmetal-demo /var/lib/nearmetal 2>&1; grep -E ' (debugfs|tracefs) ' /proc/mounts; true";

fn short(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    let state = || anyhow::Ok((bench.fingerprint()?, bench.sh(BORROWED)?));
    let before = state()?;
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(programs()?.join("nearmetal"));
    command.args(["demo", "--short", "--lab", bench.lab.name().as_str(), "--output"]).arg(directory.path());
    let output = command.output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = words.lines().rev().take(12).collect();
    ensure!(output.status.success(), "it ended with {}: {last:#?}", output.status);
    let summary = summary(directory.path())?;
    let page = files::read_to_string(&directory.path().join("report.html"))?;
    let metric = summary.headline_metric.as_deref().context("no headline")?;
    let figure = summary
        .arms
        .iter()
        .find(|row| row.metric == metric && (row.arm.as_str(), row.reference.as_str()) == ("planned", "bare-slice"));
    let ratio = figure.and_then(|figure| figure.ratio).context("the headline has no ratio")?;
    let shown = summary.headline.split(' ').find(|word| word.ends_with('×')).context("no ratio in the headline")?;
    let said: f64 = shown.trim_end_matches('×').parse()?;
    ensure!((said - ratio).abs() <= 0.005, "the headline says {shown}, the figures {ratio}");
    ensure!(page.contains(&format!("<span class=\"result\">{shown}</span>")), "the page's headline lacks {shown}");
    ensure!(page.contains("exits by reason"), "the page has no exits by reason");
    ensure!(summary.verified == Some(true) && summary.rolled_back == Some(true), "{summary:?}");
    let after = state()?;
    ensure!(after == before, "the demo left a difference:\n{before:#?}\n---\n{after:#?}");
    let stages = summary.stages.iter().filter_map(|stage| Some(format!("{} {:.0} s", stage.name, stage.seconds?)));
    Ok(Verdict::Holds(format!("{shown}; {}", stages.collect::<Vec<_>>().join(", "))))
}

/// `summary.json`, if it keeps its schema.
fn summary(directory: &Path) -> anyhow::Result<Summary> {
    let text = files::read_to_string(&directory.join("summary.json"))?;
    let violations = summary_violations(&text);
    ensure!(violations.is_empty(), "{violations:#?}");
    Ok(serde_json::from_str(&text)?)
}
