//! What a run costs beside `virsh create` of the same definition, until the guest's first command: side by side.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::super::Verdict;
use super::{flavours, nothing_is_left, waiting};
use crate::context::Bench;

const PAIRS: usize = 3;
/// A run reserves, reads back and waits for the agent. What that costs is printed and not judged: it was 0.99 of `virsh create` on a quiet
/// host, 1.12 beside compilers and 1.18 beside another lab, since a run has more processes that wait for a processor. More than this no
/// neighbour explains.
const MOST: f64 = 1.5;
/// The steps of a run that the split shows, by their events.
const STEPS: [&str; 5] = ["reserved", "started", "read-back", "agent", "command-started"];

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Milliseconds that a shell line takes, by the lab's clock.
fn timed(bench: &Bench, script: &str) -> anyhow::Result<(f64, String)> {
    let said = bench.sh(&format!("t=$(date +%s%N); {script}\necho; echo $((($(date +%s%N) - t) / 1000))"))?;
    let last = said.lines().last().context("no time")?;
    Ok((last.parse::<f64>()? / 1000.0, said))
}

/// Until its command has begun, in milliseconds, and when each step was done.
fn run(bench: &Bench) -> anyhow::Result<(f64, Vec<f64>)> {
    let (all, said) = timed(
        bench,
        "nearmetal run tiny --flavours /root/flavours.toml --events /root/events -- true && cat /root/events",
    )?;
    let events: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let at = |name: &str| -> anyhow::Result<f64> {
        let event =
            events.iter().find(|event| event["event"] == name).with_context(|| format!("no `{name}`: {said}"))?;
        Ok(event["seconds"].as_f64().context("no time")? * 1000.0)
    };
    let steps = STEPS.into_iter().map(at).collect::<anyhow::Result<Vec<_>>>()?;
    // With what came before the first event's clock began.
    Ok((all - at("ended")? + at("command-started")?, steps))
}

pub(super) fn over_virsh(bench: &Bench) -> anyhow::Result<Verdict> {
    flavours(bench)?;
    // The same definition, as libvirt has it, under a name of its own.
    bench.sh(&format!(
        "{}virsh dumpxml --inactive $(virsh list --name | grep ^run-) | sed -e 's|<name>.*|<name>plain</name>|' -e '/<uuid>/d' >/root/plain.xml
         kill -TERM $run; wait $run; grep -q '<cputune>' /root/plain.xml",
        waiting("tiny")
    ))?;
    let command = r#"'{\"execute\":\"guest-exec\",\"arguments\":{\"path\":\"/bin/true\"}}'"#;
    // One virsh, which is told when the agent is there: nothing asks the guest meanwhile.
    let plain = format!(
        "virsh -q \"create /root/plain.xml; event plain agent-lifecycle --timeout 300; qemu-agent-command plain {command}\""
    );
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let (alone, said) = timed(bench, &plain)?;
        bench.sh("virsh -q destroy plain")?;
        ensure!(said.contains("\"pid\"") && said.contains("events received: 1"), "virsh ran no command: {said}");
        let (run, steps) = run(bench)?;
        pairs.push((run, alone, steps));
    }
    nothing_is_left(bench, "runs")?;
    let ratio = median(pairs.iter().map(|(run, alone, _)| run / alone).collect());
    let split: Vec<String> = STEPS
        .iter()
        .enumerate()
        .map(|(index, step)| format!("{step} {:.0}", median(pairs.iter().map(|(_, _, steps)| steps[index]).collect())))
        .collect();
    let (run, alone) =
        (median(pairs.iter().map(|pair| pair.0).collect()), median(pairs.iter().map(|pair| pair.1).collect()));
    let words = format!(
        "{ratio:.3}x of virsh create, median of {PAIRS} pairs; ms to the first command: {run:.0} against {alone:.0}; at {}; lab: emulated time",
        split.join(", ")
    );
    ensure!(ratio <= MOST, "{words}");
    Ok(Verdict::Holds(words))
}
