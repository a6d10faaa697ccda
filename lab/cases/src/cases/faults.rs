//! Faults seeded over host, devices and domains: doctor finds each of them, and nothing where there is none.

use std::collections::BTreeSet;

use anyhow::ensure;
use serde_json::Value;

use super::{Case, Verdict, alone};
use crate::context::{Bench, Boot};

mod seeds;

use seeds::{ISOLATED, SEEDS, Seed, long};

pub(super) fn cases() -> Vec<Case> {
    vec![alone("doctor/seeded-faults", seeded)]
}

/// A machine with nothing to find, in a lab with these kernel arguments.
fn clean(arguments: &[&str]) -> anyhow::Result<Bench> {
    let append = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let bench = Bench::up("faults", &Boot { append, ..Boot::default() })?;
    for (name, text) in [
        ("web1.xml", include_str!("faults/web1.xml")),
        ("db1.xml", include_str!("faults/db1.xml")),
        ("wide1.xml", include_str!("faults/wide1.xml")),
        ("clean.sh", include_str!("faults/clean.sh")),
    ] {
        bench.write(&format!("/root/{name}"), text)?;
    }
    bench.sh("sh /root/clean.sh")?;
    bench.wait_for_agent()?;
    Ok(bench)
}

fn seeded() -> anyhow::Result<Verdict> {
    let bench = clean(&[ISOLATED])?;
    let result = nothing(&bench);
    bench.lab.down()?;
    result?;
    // A long command line takes a boot of its own.
    let bench = clean(&[ISOLATED, &long()])?;
    let result = all_found(&bench);
    bench.lab.down()?;
    result
}

/// No false finding on the clean machine. The one it has is true: the lab has tuned, and does not run it.
fn nothing(bench: &Bench) -> anyhow::Result<()> {
    let found = findings(bench)?;
    ensure!(found == [UNTUNED], "found on the clean machine: {found:#?}");
    bench.ends_with(0, "nearmetal doctor").map(drop)
}

const UNTUNED: &str = "tuned-profile-matches-role host: tuned";

fn all_found(bench: &Bench) -> anyhow::Result<Verdict> {
    for seed in SEEDS {
        bench.sh(&format!("set -e; {}\n{}", seeds::EDIT, seed.sow))?;
    }
    let found = findings(bench)?;
    let missed: Vec<&str> = SEEDS.iter().filter(|seed| !seed.is_in(&found)).map(|seed| seed.name).collect();
    ensure!(missed.is_empty(), "not found: {missed:?} among {found:#?}");
    let surplus = surplus(&found);
    ensure!(surplus.is_empty(), "found, and not seeded: {surplus:?} among {found:#?}");
    fixed(bench, &found)?;
    let cured = SEEDS.iter().filter(|seed| seed.cured).count();
    let row = |seed: &Seed| format!("\n  {:50} {}", seed.name, if seed.cured { "found, cured" } else { "found" });
    let table: String = SEEDS.iter().map(row).collect();
    Ok(Verdict::Holds(format!("{} seeded, {0} found, none besides, {cured} cured and taken back{table}", SEEDS.len())))
}

/// Rules and places found that no fault accounts for.
fn surplus(found: &[String]) -> Vec<&str> {
    let expected: BTreeSet<&str> = SEEDS.iter().flat_map(Seed::places).collect();
    let seen = found.iter().filter(|line| *line != UNTUNED).filter_map(|line| line.split_once(": "));
    seen.map(|(place, _)| place).filter(|place| !expected.contains(place)).collect()
}

/// What can be cured is, reads back as cured, and comes back with a rollback.
fn fixed(bench: &Bench, before: &[String]) -> anyhow::Result<()> {
    let state = bench.sh(STATE)?;
    bench.ends_with(1, "nearmetal doctor --fix --yes")?;
    let after = findings(bench)?;
    let wrong: Vec<&str> = SEEDS.iter().filter(|seed| seed.is_in(&after) == seed.cured).map(|seed| seed.name).collect();
    ensure!(wrong.is_empty(), "cured, or not, against expectation: {wrong:?}; left: {after:#?}");
    let surplus = surplus(&after);
    ensure!(surplus.is_empty(), "the cures brought {surplus:?}");
    bench.ends_with(0, "nearmetal verify")?;
    bench.ends_with(0, "nearmetal rollback")?;
    let restored = bench.sh(STATE)?;
    ensure!(restored == state, "before the cures:\n{state}\nafter the rollback:\n{restored}");
    // Which PU of an interrupt's mask it goes to is the kernel's choice, made anew; the one that was seeded has one alone.
    let chosen = |line: &String| line.starts_with("irq-affinity-off-isolated");
    let again = findings(bench)?;
    ensure!(again.iter().any(|line| line.contains("(virtio2-input.0)")), "the interrupt is not back: {again:#?}");
    let differs = |left: &[String], right: &[String]| {
        left.iter().filter(|line| !chosen(line) && !right.contains(line)).cloned().collect::<Vec<_>>()
    };
    let (lost, new) = (differs(before, &again), differs(&again, before));
    ensure!(lost.is_empty() && new.is_empty(), "after the rollback not found again: {lost:?}, found besides: {new:?}");
    Ok(())
}

/// All that the cures touch.
const STATE: &str = "
for domain in web1 db1 wide1; do virsh dumpxml --inactive --security-info $domain; done
for domain in web1 db1; do
    virsh -q vcpupin $domain --live; virsh -q emulatorpin $domain --live; virsh -q iothreadinfo $domain --live
done
grep -H . /proc/sys/kernel/numa_balancing /sys/kernel/mm/ksm/run /sys/kernel/mm/transparent_hugepage/defrag \\
    /sys/module/kvm/parameters/halt_poll_ns /proc/irq/*/smp_affinity_list \\
    /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages
ls /etc/systemd/system/nearmetal-boot.service 2>&1; true";

/// Everything found, as `rule place: object`.
fn findings(bench: &Bench) -> anyhow::Result<Vec<String>> {
    let document = bench.json("nearmetal doctor --fail-on never --format json")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for finding in document["findings"].as_array().into_iter().flatten() {
        let scope = &finding["scope"];
        let place = match (scope["name"].as_str(), scope["which"].as_str()) {
            (Some(name), Some("both")) => name.to_owned(),
            (Some(name), which) => format!("{name}/{}", which.unwrap_or_default()),
            (None, _) => "host".to_owned(),
        };
        for object in finding["objects"].as_array().into_iter().flatten() {
            lines.push(format!("{} {place}: {}", text(&finding["rule"]), text(&object["what"])));
        }
    }
    Ok(lines)
}
