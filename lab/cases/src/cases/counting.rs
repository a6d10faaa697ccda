//! A lab whose processors count: the counts themselves, and what a measurement makes of them.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use nearmetal_lab::machine::Count;
use nearmetal_measure::{AS_FOUND, BARE_SLICE, Outcome, PLANNED, Results};
use serde_json::Value;

use super::{Case, Verdict, alone, shared_long};
use crate::context::{Bench, Boot};

pub(super) fn cases() -> Vec<Case> {
    vec![
        alone("count/counts-hold-and-show-where-memory-is", counts),
        shared_long("count/modes-over-nodes-differ-in-where-memory-is", modes),
    ]
}

/// The most that the count of a known loop may be off, and that of entries against KVM's.
const LOOP: f64 = 0.001;
const ENTRIES: f64 = 0.01;
/// Some fifty boots of a guest.
const MODES_LIMIT: Duration = Duration::from_secs(2400);
/// The part of a bound program's accesses that must go to the node it is bound to; the rest is its start.
const BOUND: f64 = 0.99;

fn counts() -> anyhow::Result<Verdict> {
    let bench = Bench::up("cases-count", &Boot { count: Some(Count::Work), ..Boot::default() })?;
    let check = bench.json("nearmetal-probe count --check")?;
    for (what, most) in [("host", LOOP), ("guest", LOOP), ("entries", ENTRIES)] {
        let error = check["result"][what]["error"].as_f64().context("no error")?;
        ensure!(error <= most, "{what} is off by {error}, {most} at most: {}", check["result"][what]);
    }
    let far = bound(&bench, 3, 2)?;
    ensure!(far >= BOUND, "bound to node 2, and {far} of the accesses went there");
    let touched = touched(&bench)?;
    bench.sh("nearmetal bench slice web1 --quick --pause --pairs 2 --seconds 3 --no-memory --no-single-shots --same-arm-pairs 0 --scratch /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2 -o /root/count.json")?;
    let results: Results = serde_json::from_str(&bench.document("/root/count.json", "web1")?)?;
    let failed: Vec<_> = results.runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed { .. })).collect();
    ensure!(failed.is_empty(), "{failed:?}");
    let work = |arm| mean(&results, arm, "work.instructions");
    let local = |arm| mean(&results, arm, "locality.local-share");
    let (bare, planned, found) = (work(BARE_SLICE)?, work(PLANNED)?, work(AS_FOUND)?);
    ensure!(bare < planned, "a request takes {bare} instructions on bare metal, {planned} in the guest");
    let (near, anywhere) = (local(PLANNED)?, local(AS_FOUND)?);
    ensure!(
        near > 0.95 && near > anywhere,
        "{near} of the accesses stay on their node as planned, {anywhere} as found"
    );
    bench.lab.down()?;
    Ok(Verdict::Holds(format!(
        "lab: check {}; touched {touched}; instructions per request: bare {bare:.0}, planned {planned:.0}, as found {found:.0}; local: planned {:.1} %, as found {:.1} %",
        check["result"],
        near * 100.0,
        anywhere * 100.0
    )))
}

/// A guest over four nodes in every mode: what sees its nodes, or has one, touches memory there, and what does not scatters.
fn modes(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    bench.sh_within(MODES_LIMIT, "nearmetal bench modes web1 --quick --pause --counts 1,4 --pairs 2 --seconds 3 --overlap 50 --same-arm-pairs 0 -o /root/modes.json")?;
    let results: Results = serde_json::from_str(&bench.document("/root/modes.json", "web1")?)?;
    let over = |arm: &str, count: usize| {
        let runs: Vec<_> = results.runs.iter().filter(|run| run.count == count).cloned().collect();
        mean(&Results { runs, ..results.clone() }, arm, "locality.local-share")
    };
    let mut told = Vec::new();
    for arm in &results.arms {
        let (one, all) = (over(&arm.name.id, 1)?, over(&arm.name.id, 4)?);
        told.push(format!("{} {:.1} and {:.1} %", arm.name.title, one * 100.0, all * 100.0));
        let is_near = matches!(arm.name.id.as_str(), BARE_SLICE | "cells" | "per-node");
        ensure!(!is_near || all > 0.9, "{}: {all} of the accesses stay on their node", arm.name.title);
    }
    let (cells, default) = (over("cells", 4)?, over("default", 4)?);
    ensure!(cells > default + 0.2, "with cells {cells} of the accesses stay on their node, by default {default}");
    let told = told.join("; ");
    Ok(Verdict::Holds(format!("lab: accesses that stay on their node, over one node and over four: {told}")))
}

/// Memory that the guest's vCPUs touch, as found and as planned, while it works: only the second passes.
fn touched(bench: &Bench) -> anyhow::Result<String> {
    bench.found()?;
    bench.sh("nearmetal plan web1 -o /root/plan.json")?;
    let found = touches(bench, "mismatch")?;
    bench.sh("nearmetal apply /root/plan.json --restart --yes")?;
    bench.wait_for_agent()?;
    let planned = touches(bench, "ok")?;
    Ok(format!("as found {found}, as planned {planned}"))
}

/// What `verify --deep` says of it.
fn touches(bench: &Bench, outcome: &str) -> anyhow::Result<String> {
    let work = r#"{"execute":"guest-exec","arguments":{"path":"/bin/sh","arg":["-c","timeout 40 sh -c 'while :; do md5sum /usr/bin/*; done' > /dev/null 2>&1"]}}"#;
    bench.sh(&format!("virsh -q qemu-agent-command web1 '{}'", work.replace('\'', r"'\''")))?;
    let output = bench
        .try_sh("nearmetal verify web1 --plan /root/plan.json --deep --no-load --agent-timeout 60 --format json")?;
    let verified: Value = serde_json::from_str(&output.text())?;
    let checks = verified.pointer("/0/checks").or_else(|| verified.get("checks")).and_then(Value::as_array);
    let check =
        checks.context("no checks")?.iter().find(|check| check["kind"] == "touched").context("nothing touched")?;
    ensure!(check["outcome"] == outcome, "not {outcome}: {check}");
    Ok(check["found"].as_str().unwrap_or_default().to_owned())
}

/// The part of a program's accesses that go to the node it is bound to.
fn bound(bench: &Bench, pu: usize, node: usize) -> anyhow::Result<f64> {
    let counted = bench.json(&format!(
        "nearmetal-probe count --memory -- nearmetal-probe memory latency --cpus {pu} --nodes {node} --size 4MiB --samples 10 --loads 5000000"
    ))?;
    let nodes = counted["result"]["pus"][pu]["memory"].as_array().context("accesses were not counted")?;
    let user = |node: &Value| node["user"].as_f64().unwrap_or_default();
    Ok(user(&nodes[node]) / nodes.iter().map(user).sum::<f64>())
}

/// The mean of a metric over an arm's runs.
fn mean(results: &Results, arm: &str, metric: &str) -> anyhow::Result<f64> {
    let values: Vec<f64> =
        (results.runs.iter().filter(|run| run.arm == arm)).filter_map(|run| Some(run.value(metric)?.value)).collect();
    ensure!(!values.is_empty(), "{arm} has no {metric}");
    Ok(values.iter().sum::<f64>() / values.len() as f64)
}
