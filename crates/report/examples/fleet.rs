//! Shows the plan of an invented fleet, to look at while working on its report.
//!
//! `cargo run -p nearmetal-report --example fleet -- two svg > /tmp/two.svg`
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a developer's tool: its output is its purpose

#[path = "../tests/fleets/mod.rs"]
mod fleets;

use nearmetal_fleet::WhatIf;
use nearmetal_host::Host;
use nearmetal_report::Style;
use nearmetal_report::fleet::{Details, FleetReport, what_if_text};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (made, words) = match words.as_slice() {
        ["told", rest @ ..] => (fleets::told(), rest),
        ["two", rest @ ..] => (fleets::two_hosts(), rest),
        ["epyc", rest @ ..] => (fleets::epyc(), rest),
        ["twelve", rest @ ..] => (fleets::twelve_hosts(), rest),
        ["many", hosts, vms, rest @ ..] => (fleets::many(hosts.parse().unwrap(), vms.parse().unwrap()), rest),
        // A host of `nearmetal inspect --format json` on standard input.
        ["one", rest @ ..] => {
            let document: serde_json::Value = serde_json::from_reader(std::io::stdin()).unwrap();
            let host = serde_json::from_value::<Host>(document["host"].clone()).unwrap();
            (fleets::of_one("captured", host, 32), rest)
        }
        _ => {
            println!(
                "fleet told | two | epyc | twelve | one | many HOSTS VMS, then svg | overview | page | json | text WIDTH | details WIDTH | what-if WIDTH"
            );
            return;
        }
    };
    let is_told = made.plan == fleets::told().plan;
    let report = made.report();
    let style = |width: &str| Style { width: width.parse().unwrap(), colour: false, ascii: false };
    let text = match words {
        ["svg"] => report.svg(),
        ["overview"] => report.overview_svg(),
        ["page"] => report.html("an invented fleet", "2026-01-01T00:00:00Z").unwrap(),
        ["json"] => serde_json::to_string_pretty(&made.plan).unwrap(),
        ["text", width] => report.text(&Details::new(style(width))),
        ["details", width] => report.text(&Details { all: true, ..Details::new(style(width)) }),
        ["what-if", width] if is_told => {
            let other = fleets::told_without_beta();
            what_if_text(&report, &other.report(), &Details::new(style(width)))
        }
        ["what-if", width] => {
            let last = made.fleet.hosts.last().unwrap().name.clone();
            let changed = made.fleet.what_if(&WhatIf::RemoveHost(last)).unwrap();
            let other = fleets::Invented::new(changed, Vec::new(), 200);
            let after = FleetReport::new(&other.fleet, &other.plan, &[]);
            what_if_text(&report, &after, &Details::new(style(width)))
        }
        _ => String::new(),
    };
    print!("{text}");
}
