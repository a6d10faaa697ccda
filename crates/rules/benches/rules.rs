//! How long all rules take, by number of domains. Prints a table and writes target/bench/rules.json.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::path::Path;
use std::time::Instant;

use nearmetal_domain::DomainXml;
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_rules::{Domain, Input, RULES, Settings, examine};
use nearmetal_units::Bytes;

/// Timed runs of each case; the median is shown.
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = include_str!("../../../fixtures/rules/db.xml");
    let machine = Synthetic::new().packages(4).cores_per_node(32).threads(2).numbering(Numbering::Split);
    let machine = machine.memory_per_node(Bytes::from_mib(1024 << 10));
    let host = (0..4).fold(machine, |machine, node| machine.nvme(node).network(node, 8, 8)).build();
    let settings = Settings::default();
    let mut records = Vec::new();
    println!("{:>8} {:>9} {:>12} {:>12}", "domains", "findings", "XML", "rules");
    for count in [0, 10, 1000] {
        let texts: Vec<String> = (0..count)
            .map(|number| {
                // Each on cores of its own as long as there are some.
                let first = number % 30 * 4;
                let renamed = text.replace("<name>db", &format!("<name>db{number}"));
                (0..4u32).fold(renamed, |text, vcpu| {
                    let old = [1, 17, 2, 18][vcpu as usize];
                    let new = first + vcpu / 2 + vcpu % 2 * 128;
                    text.replace(&format!("vcpu='{vcpu}' cpuset='{old}'"), &format!("vcpu='{vcpu}' cpuset='{new}'"))
                })
            })
            .collect();
        let (mut reading, mut checking, mut found) = (Vec::new(), Vec::new(), 0);
        for _ in 0..RUNS {
            let start = Instant::now();
            let mut domains = Vec::new();
            for text in &texts {
                let facts = DomainXml::parse(text)?.facts()?;
                domains.extend(Domain::new(Some(facts.clone()), Some(facts), None));
            }
            reading.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let result = examine(&Input { host: Some(&host), domains: &domains, settings: &settings }, RULES);
            checking.push(start.elapsed().as_secs_f64());
            found = result.findings.len();
        }
        reading.sort_by(f64::total_cmp);
        checking.sort_by(f64::total_cmp);
        let (read, checked) = (reading[RUNS / 2], checking[RUNS / 2]);
        println!("{count:>8} {found:>9} {:>9.1} ms {:>9.1} ms", read * 1e3, checked * 1e3);
        records.push(serde_json::json!({
            "domains": count, "findings": found, "unit": "s", "read": reading, "check": checking,
            "median_read": read, "median_check": checked,
        }));
    }
    let record = serde_json::json!({ "schema": "nearmetal.bench.rules/1", "runs": RUNS, "cases": records });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    nearmetal_host::files::create_dir_all(&folder)?;
    nearmetal_host::files::write(&folder.join("rules.json"), serde_json::to_string_pretty(&record)?)?;
    Ok(())
}
