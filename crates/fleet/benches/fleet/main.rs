//! How well and how fast fleets are placed, beside the rules of others. Prints tables and writes target/bench/fleet.json.
//!
//! Parts by name after `--`: `full`, `uv`, `scale`, `production`, `streams`; none: all. NEARMETAL_BENCH_SEEDS is how many
//! subsets of the production servers are drawn (20), NEARMETAL_BENCH_BATCHES how many full batches are cut (150).
#![allow(clippy::print_stdout, reason = "a benchmark prints its tables")]

mod ceiling;
mod full;
mod hosts;
mod peers;
mod production;
mod scale;
mod streams;
mod uv;

use std::path::Path;

use serde_json::{Map, Value};

type Failure = Box<dyn std::error::Error>;

/// A part of the bench: prints its table, returns its record.
type Part = fn() -> Result<Value, Failure>;

const PARTS: [(&str, Part); 5] = [
    ("full", full::run),
    ("uv", uv::run),
    ("scale", scale::run),
    ("production", production::run),
    ("streams", streams::run),
];

fn main() -> Result<(), Failure> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    nearmetal_host::files::create_dir_all(&folder)?;
    let mut record = Map::new();
    record.insert("schema".to_owned(), "nearmetal.bench.fleet/1".into());
    for (name, run) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            println!("\n== {name}");
            record.insert(name.to_owned(), run()?);
        }
    }
    let text = serde_json::to_string_pretty(&Value::Object(record))?;
    nearmetal_host::files::write(&folder.join("fleet.json"), text)?;
    Ok(())
}

/// Plans and has the plan judged; a breach ends the bench.
fn judged(
    fleet: &nearmetal_fleet::Fleet,
    options: &nearmetal_fleet::Options,
) -> Result<(nearmetal_fleet::FleetPlan, f64), Failure> {
    let start = std::time::Instant::now();
    let plan = nearmetal_fleet::plan(fleet, options)?;
    let seconds = start.elapsed().as_secs_f64();
    let breaches = nearmetal_fleet::check(fleet, &plan);
    match breaches.first() {
        Some(breach) => Err(format!("the checker found {} breaches, the first: {breach}", breaches.len()).into()),
        None => Ok((plan, seconds)),
    }
}

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The middle one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Random numbers for instances: SplitMix64, so that they are the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            list.swap(at, self.below(at + 1));
        }
    }
}
