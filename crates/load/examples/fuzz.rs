//! Damages what the programs of loads print, millions of times, and expects it to be read or refused: much of it comes out of guests.
//!
//! Part of `./dev fuzz [COUNT] [NAME]`, with the rules of the host crate's example of this name.

use std::process::ExitCode;

use nearmetal_host::fuzzing::campaign;

fn main() -> ExitCode {
    campaign(nearmetal_load::fuzzing::targets(), std::env::args().skip(1))
}
