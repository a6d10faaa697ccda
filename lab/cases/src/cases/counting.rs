//! A lab whose processors count: the counts themselves, and what a measurement makes of them.

use anyhow::{Context as _, ensure};
use nearmetal_results::{AS_FOUND, BARE_SLICE, PLANNED, Purpose, Results, Run};
use serde_json::{Value, json};

use super::{Case, Verdict, long_in, shared_long};
use crate::context::Bench;
use crate::labs::Labs;

pub(super) fn cases() -> Vec<Case> {
    vec![
        long_in(Labs::Counting, "count/counts-hold-and-show-where-memory-is", counts),
        long_in(Labs::Counting, "count/a-guest-that-ignores-its-cells-is-seen", ignored_cells),
        shared_long("count/a-pu-that-goes-offline-spoils-its-sample-alone", offline),
    ]
}

/// The most that the count of a known loop may be off, and that of entries against KVM's.
const LOOP: f64 = 0.001;
const ENTRIES: f64 = 0.01;
/// The part of a bound program's accesses that must go to the node it is bound to; the rest is its start.
const BOUND: f64 = 0.99;

fn counts(bench: &Bench) -> anyhow::Result<Verdict> {
    let check = bench.json("nearmetal-probe count --check")?;
    for (what, most) in [("host", LOOP), ("guest", LOOP), ("entries", ENTRIES)] {
        let error = check["result"][what]["error"].as_f64().context("no error")?;
        ensure!(error <= most, "{what} is off by {error}, {most} at most: {}", check["result"][what]);
    }
    let far = bound(bench, 3, 2)?;
    ensure!(far >= BOUND, "bound to node 2, and {far} of the accesses went there");
    let touched = touched(bench)?;
    bench.sh("nearmetal bench slice web1 --arm as-found --arm planned --no-reasons --quick --pause --pairs 2 --seconds 3 --no-memory --no-single-shots --same-arm-pairs 0 --scratch /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2 -o /root/count.json")?;
    let results: Results = serde_json::from_str(&bench.document("/root/count.json", "web1")?)?;
    // A slow machine is done before accesses were counted; the second time there is more to do.
    let made_good = |failed: &Run| {
        let is_it = |run: &&Run| (run.round, run.position) == (failed.round, failed.position);
        failed.purpose == Purpose::Accesses && results.runs.iter().filter(is_it).any(|run| run.failure().is_none())
    };
    let failed: Vec<_> = results.runs.iter().filter(|run| run.failure().is_some() && !made_good(run)).collect();
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
    Ok(Verdict::Holds(format!(
        "lab: check {}; touched {touched}; instructions per request: bare {bare:.0}, planned {planned:.0}, as found {found:.0}; local: planned {:.1} %, as found {:.1} %",
        check["result"],
        near * 100.0,
        anywhere * 100.0
    )))
}

/// Of a guest over nodes in every mode: what sees its nodes, or has one, touches memory there, and what does not scatters.
pub(super) fn near_and_far(results: &Results) -> anyhow::Result<String> {
    let over = |arm: &str, metric| mean(results, arm, metric);
    let mut told = Vec::new();
    for arm in &results.arms {
        let all = over(&arm.name.id, "locality.local-share")?;
        let modelled = over(&arm.name.id, "modelled.ns")?;
        told.push(format!("{} {:.1} %, {modelled:.0} modelled ns a load", arm.name.title, all * 100.0));
        let is_near = matches!(arm.name.id.as_str(), BARE_SLICE | "cells" | "per-node");
        ensure!(!is_near || all > 0.9, "{}: {all} of the accesses stay on their node", arm.name.title);
    }
    let (cells, default) = (over("cells", "locality.local-share")?, over("default", "locality.local-share")?);
    ensure!(cells > default + 0.2, "with cells {cells} of the accesses stay on their node, by default {default}");
    Ok(format!("; accesses that stay on their node: {}", told.join("; ")))
}

/// A fleet of one VM over two nodes of this lab.
const WIDE: &str = r#"
[[host]]
name = "here"
local = true
keep = { cores-per-node = 1, memory-per-node = "512 MiB", pools-grow = true }

[[vm]]
name = "wide"
vcpus = 4
memory = "512 MiB"
numa = 2
page-size = "2 MiB"
template = "small.xml"
"#;

/// A guest whose own kernel ignores its cells: its pages lie as planned, and only what its vCPUs touch tells.
fn ignored_cells(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.found()?;
    bench.sh("virsh -q destroy web1; mkdir -p /root/cells")?;
    bench.write("/root/cells/fleet.toml", WIDE)?;
    let mut told = Vec::new();
    for (argument, outcome) in [("", "ok"), (" numa=off", "mismatch")] {
        let template = super::fleet::SMALL.replace("</cmdline>", &format!("{argument}</cmdline>"));
        bench.write("/root/cells/small.xml", &template)?;
        bench.sh("cd /root/cells && nearmetal plan --fleet fleet.toml -o plan.json && nearmetal apply plan.json --restart --yes && virsh -q start wide")?;
        bench.wait_for_agent_of("wide")?;
        bench.sh(&agent_runs("wide", EACH_ITS_OWN))?;
        let verify =
            "cd /root/cells && nearmetal verify --plan plan.json --deep --no-load --agent-timeout 60 --format json";
        let verified: Value = serde_json::from_str(&bench.try_sh(verify)?.text())?;
        let checks = verified.pointer("/hosts/0/output/checks").and_then(Value::as_array).context("no checks")?;
        let of_kind = |kind: &'static str| checks.iter().filter(move |check| check["kind"] == kind);
        let pages = of_kind("memory").filter(|check| check["outcome"] != "ok").count();
        let cells: Vec<&Value> =
            of_kind("touched").filter(|check| check["subject"].as_str().unwrap_or_default().contains("cell")).collect();
        let wrong = cells.iter().filter(|check| check["outcome"] == "mismatch").count();
        ensure!(cells.len() == 2 && pages == 0, "{checks:?}");
        ensure!((wrong > 0) == (outcome == "mismatch"), "with `{argument}` {outcome} was expected: {cells:?}");
        let found =
            cells.iter().map(|check| check["found"].as_str().unwrap_or_default()).collect::<Vec<_>>().join(", ");
        told.push(format!("{}: {found}", if argument.is_empty() { "cells heeded" } else { "numa=off" }));
        bench.sh("cd /root/cells && virsh -q destroy wide; nearmetal rollback --plan plan.json")?;
    }
    Ok(Verdict::Holds(format!("lab: {}", told.join("; "))))
}

/// On each vCPU a shell that copies a text of its own, for a minute.
const EACH_ITS_OWN: &str = r#"for c in 0 1 2 3; do timeout 60 taskset -c $c sh -c 'x=$(head -c 1000000 /dev/zero | tr "\0" a); while :; do y=$x$x; done' & done; wait"#;

/// A PU that goes offline while a sample is measured: that sample has no figure, says why, and is measured once more.
fn offline(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    // The bare slice's fio alone runs on the host; half-way through its ten seconds it is counted.
    bench.sh("(until pgrep -f '[f]io .*--runtime=10' > /dev/null; do sleep 0.2; done; sleep 6.5; echo 0 > /sys/devices/system/cpu/cpu11/online) > /dev/null 2>&1 &
             nearmetal bench slice web1 --arm planned --no-reasons --quick --pause --pairs 1 --seconds 10 --no-memory --no-single-shots --same-arm-pairs 0 --scratch /dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2 -o /root/offline.json
             code=$?; echo 1 > /sys/devices/system/cpu/cpu11/online; exit $code")?;
    let results: Results = serde_json::from_str(&bench.document("/root/offline.json", "web1")?)?;
    let failed: Vec<&str> = results.runs.iter().filter_map(|run| run.failure()).collect();
    ensure!(matches!(failed[..], [why] if why.contains("PU 11 went offline")), "{failed:?}");
    Ok(Verdict::Holds(format!("lab: 1 of {} samples failed and was made good: {}", results.runs.len(), failed[0])))
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
    bench.sh(&agent_runs("web1", "timeout 40 sh -c 'while :; do md5sum /usr/bin/*; done' > /dev/null 2>&1"))?;
    let output = bench
        .try_sh("nearmetal verify web1 --plan /root/plan.json --deep --no-load --agent-timeout 60 --format json")?;
    let verified: Value = serde_json::from_str(&output.text())?;
    let checks = verified.pointer("/0/checks").or_else(|| verified.get("checks")).and_then(Value::as_array);
    let check =
        checks.context("no checks")?.iter().find(|check| check["kind"] == "touched").context("nothing touched")?;
    ensure!(check["outcome"] == outcome, "not {outcome}: {check}");
    Ok(check["found"].as_str().unwrap_or_default().to_owned())
}

/// A command of the host's shell that has a guest's shell run this.
fn agent_runs(guest: &str, command: &str) -> String {
    let asked = json!({"execute": "guest-exec", "arguments": {"path": "/bin/sh", "arg": ["-c", command]}});
    format!("virsh -q qemu-agent-command {guest} '{}'", asked.to_string().replace('\'', r"'\''"))
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
