//! Damages fleet files, millions of times, and expects each to be read or refused with a place in it.
//!
//! Part of `./dev fuzz [COUNT] [NAME]`, with the rules of the host crate's example of this name.

use std::process::ExitCode;

use nearmetal_fleet::file::{EXAMPLE, FleetFile, summary};
use nearmetal_host::fuzzing::{Target, campaign};

const SMALL: &str = "[[host]]\nname = \"a\"\nlocal = true\n[[vm]]\nname = \"b\"\ncount = 3\nvcpus = 2\nmemory = \"2 GiB\"\n\
                     numa = 2\ncpus = { shared = 4.0 }\n[[vm.nic]]\nkind = \"vf\"\n";

/// Reads it; what is understood is shown, what is not points into the text.
fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match FleetFile::parse("fuzz", text) {
        Ok(file) => drop(summary(&file)),
        Err(errors) => {
            assert!(!errors.problems.is_empty());
            let lines = text.matches('\n').count() + 1;
            assert!(errors.problems.iter().all(|problem| problem.line <= lines && problem.column > 0));
            drop(errors.to_string());
        }
    }
}

fn main() -> ExitCode {
    let target = |name: &'static str, seed: &str| Target { name, seed: seed.into(), run: Box::new(read) };
    campaign(vec![target("fleet file", EXAMPLE), target("small fleet file", SMALL)], std::env::args().skip(1))
}
