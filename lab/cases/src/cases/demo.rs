//! `nearmetal demo`, run on this host against the shared lab: the way a stranger first meets the program.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use nearmetal_host::files;
use nearmetal_report::{Summary, summary_violations};

use super::{Case, Verdict, shared, shared_long};
use crate::context::{Bench, programs};

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared("demo/short-ends-in-a-report-and-a-lab-as-it-was", short),
        shared_long("demo/broken-behind-its-back-says-what-and-what-next", broken),
    ]
}

/// What the demo borrows beside the guest: its own directory, the journal, and file systems of counters.
const BORROWED: &str =
    "ls -d /root/nearmetal-demo /var/lib/nearmetal 2>&1; grep -E ' (debugfs|tracefs) ' /proc/mounts; true";

fn state(bench: &Bench) -> anyhow::Result<(String, String)> {
    Ok((bench.fingerprint()?, bench.sh(BORROWED)?))
}

/// Runs the short demo into a directory: its exit code and its last words on stderr.
fn demo(bench: &Bench, directory: &Path) -> anyhow::Result<(Option<i32>, String)> {
    let mut command = Command::new(programs()?.join("nearmetal"));
    command.args(["demo", "--short", "--lab", bench.lab.name().as_str(), "--output"]).arg(directory);
    let output = command.output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = words.lines().collect();
    Ok((output.status.code(), lines[lines.len().saturating_sub(40)..].join("\n")))
}

fn short(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    let before = state(bench)?;
    let directory = tempfile::tempdir()?;
    let (code, words) = demo(bench, directory.path())?;
    ensure!(code == Some(0), "it ended with {code:?}: {words}");
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
    ensure!(metric.ends_with("-instructions"), "a lab that counts opens with {metric}");
    ensure!(page.contains("mean distance of its accesses to memory is"), "the page does not say how near memory was");
    ensure!(summary.verified == Some(true) && summary.rolled_back == Some(true), "{summary:?}");
    let after = state(bench)?;
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

/// Waits until the guest runs as planned and its agent answers.
const PLANNED: &str = "
until ! virsh -q vcpupin web1 --live | grep -q '0-11' &&
      timeout 5 virsh -q qemu-agent-command web1 '{\"execute\":\"guest-ping\"}'; do sleep 0.3; done";

/// Breaks one demo in three ways, in the lab and while it runs. The guest's agent stops, so that nothing in it hears that it is to shut
/// down; the clone of an arm dies again and again, which ends the measurement; and a directory is in the place of the report. Each is
/// told for itself. What else can break it, a rollback that refuses and a rate of 0 among that, is in the tests of `nearmetal demo`.
const BREAKER: &str = "
virsh -q qemu-agent-command web1 '{\"execute\":\"guest-exec\",\"arguments\":{\"path\":\"/bin/sh\",\"arg\":[\"-c\",\"kill -STOP $(pidof qemu-ga)\"]}}'
while sleep 1; do virsh -q destroy web1-nearmetal-as-found; done";

/// What puts it right again. What may hold data is not powered off by nearmetal.
const UNDO: &str =
    "virsh -q destroy web1; nearmetal rollback --restart; rm -rf /root/nearmetal-demo /var/lib/nearmetal";

/// What it must say at its end.
const WORDS: [&str; 9] = [
    "as-found",
    "error: stage `bench`",
    "error: stage `rollback`",
    "could not shut down `web1`",
    "next: the change is still in force",
    "nearmetal rollback --restart",
    "error: stage `report`",
    "report.html",
    "makes the report",
];

fn broken(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    let before = state(bench)?;
    let directory = tempfile::tempdir()?;
    files::create_dir_all(&directory.path().join("report.html"))?;
    bench.write("/run/breaker", &format!("{PLANNED}{BREAKER}"))?;
    bench.sh("setsid sh /run/breaker >/run/breaker.log 2>&1 </dev/null & echo $! > /run/breaker.pid")?;
    let (code, said) = demo(bench, directory.path())?;
    bench.sh(&format!("kill -- -$(cat /run/breaker.pid) 2>/dev/null; {UNDO}"))?;
    ensure!(code == Some(3), "it ended with {code:?}, not 3: {said}");
    let unsaid: Vec<&str> = WORDS.into_iter().filter(|words| !said.contains(words)).collect();
    ensure!(unsaid.is_empty(), "its last words lack {unsaid:?}: {said}");
    let after = state(bench)?;
    ensure!(after == before, "a difference is left:\n{before:#?}\n---\n{after:#?}");
    Ok(Verdict::Holds("its bench, rollback and report failed, and each is told".to_owned()))
}
