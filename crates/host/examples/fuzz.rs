//! Damages sound inputs of every parser, millions of times, and expects each to return.
//!
//! `./dev fuzz [COUNT] [NAME]`: COUNT inputs for each parser (default 100000), parsers whose name contains NAME. The same
//! COUNT gives the same inputs on every machine; a panic prints the input that caused it.

use std::process::ExitCode;

use nearmetal_host::fuzzing::{campaign, targets};

fn main() -> ExitCode {
    campaign(targets(), std::env::args().skip(1))
}
