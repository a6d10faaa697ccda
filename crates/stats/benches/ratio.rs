//! Times `ratio`: prints a table, and writes the samples to target/bench/stats.json.
//!
//! `cargo bench -p nearmetal-stats`. Without the `--bench` that cargo bench passes (that is, under `cargo test`), each
//! case runs once and nothing is written.

#![allow(clippy::print_stdout)] // a table is what it is for

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use nearmetal_stats::{Pair, RESAMPLES, Sample, ratio};

/// Cargo's directory for the scratch files of benches, target/tmp.
const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

fn pairs(n: usize) -> Vec<Pair> {
    // Any values do: the work does not depend on them.
    (0..n).map(|index| Pair { subject: 140.0 + (index * 7 % 11) as f64, reference: 100.0 }).collect()
}

fn seconds(n: usize, repetitions: usize) -> Sample {
    let pairs = pairs(n);
    let time = || {
        let start = Instant::now();
        black_box(ratio(black_box(&pairs), 0.95, 1)).expect("pairs above zero have a ratio");
        start.elapsed().as_secs_f64()
    };
    Sample::new((0..repetitions).map(|_| time()).collect()).expect("times are finite")
}

fn main() -> std::io::Result<()> {
    let measure = std::env::args().any(|argument| argument == "--bench");
    println!("{:<8} {:>6} {:>10} {:>12} {:>12}", "what", "n", "resamples", "median ms", "minimum ms");
    let mut results = Vec::new();
    for (n, repetitions) in [(20, 200), (1000, 20)] {
        let sample = seconds(n, if measure { repetitions } else { 1 });
        let (median, minimum) = (sample.median() * 1e3, sample.minimum() * 1e3);
        println!("{:<8} {n:>6} {RESAMPLES:>10} {median:>12.3} {minimum:>12.3}", "ratio");
        results.push(serde_json::json!({
            "what": "ratio", "n": n, "resamples": RESAMPLES, "unit": "s",
            "median": sample.median(), "minimum": sample.minimum(), "samples": sample,
        }));
    }
    if measure { write(&serde_json::json!({ "schema": 1, "bench": "stats", "results": results })) } else { Ok(()) }
}

#[allow(clippy::disallowed_methods)] // a bench's own result, not a file of the kernel
fn write(report: &serde_json::Value) -> std::io::Result<()> {
    let directory = Path::new(SCRATCH).with_file_name("bench");
    std::fs::create_dir_all(&directory)?;
    let path = directory.join("stats.json");
    std::fs::write(&path, format!("{report:#}\n"))?;
    println!("samples in {}", path.display());
    Ok(())
}
