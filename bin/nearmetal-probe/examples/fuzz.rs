//! Damages what servers answer, millions of times, and expects each to be read or refused.
//!
//! Part of `./dev fuzz [COUNT] [NAME]`, with the rules of the host crate's example of this name.

use std::process::ExitCode;

use nearmetal_host::fuzzing::{Target, campaign};

fn main() -> ExitCode {
    let targets = nearmetal_probe::load::fuzz_targets().into_iter();
    let targets = targets.map(|(name, seed, run)| Target { name, seed, run: Box::new(run) });
    campaign(targets.collect(), std::env::args().skip(1))
}
