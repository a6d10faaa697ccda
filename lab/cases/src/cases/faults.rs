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

/// No false finding on the clean machine.
fn nothing(bench: &Bench) -> anyhow::Result<()> {
    let found = findings(bench)?;
    ensure!(found.is_empty(), "found on the clean machine: {found:#?}");
    bench.ends_with(0, "nearmetal doctor --fail-on note").map(drop)
}

fn all_found(bench: &Bench) -> anyhow::Result<Verdict> {
    for seed in SEEDS {
        bench.sh(&format!("set -e; {}\n{}", seeds::EDIT, seed.sow))?;
    }
    let found = findings(bench)?;
    let missed: Vec<&str> = SEEDS.iter().filter(|seed| !seed.is_in(&found)).map(|seed| seed.name).collect();
    ensure!(missed.is_empty(), "not found: {missed:?} among {found:#?}");
    let expected: BTreeSet<&str> = SEEDS.iter().flat_map(Seed::places).collect();
    let places: BTreeSet<&str> =
        found.iter().filter_map(|line| line.split_once(": ")).map(|(place, _)| place).collect();
    let surplus: Vec<_> = places.difference(&expected).collect();
    ensure!(surplus.is_empty(), "found, and not seeded: {surplus:?} among {found:#?}");
    Ok(Verdict::Holds(format!("{} seeded, {0} found, none besides; none on the clean machine", SEEDS.len())))
}

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
