//! The end-to-end cases: `./dev test` runs those that share one boot, `./dev test --all` the long ones too.
//!
//! A case is a function of a few lines in `cases/`. Results go to `target/lab-cases.json` as they come, and a second run
//! of the same build takes up where the first was interrupted.
#![allow(unreachable_pub, reason = "a program has no outside; `pub` marks what other modules use")]

mod cases;
mod context;
mod labs;
mod read_back;
mod record;
mod state;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use nearmetal_host::files;
use sha2::{Digest, Sha256};

use crate::cases::{Body, Case, Verdict};
use crate::labs::Shared;
use crate::record::{CaseRecord, Outcome, Record};

/// Run the end-to-end cases
#[derive(Debug, Parser)]
struct Cli {
    /// The long ones too: every fault point, power loss, reboot, two labs
    #[arg(long)]
    all: bool,
    /// Begin no case that would end later than in so many minutes, by what it took last; the next run takes up what is left
    #[arg(long, value_name = "MINUTES")]
    within: Option<u32>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run cases again that passed already in this build
    #[arg(long)]
    again: bool,
    /// Leave the shared labs running; the next run uses them
    #[arg(long)]
    keep_lab: bool,
    /// Print the names, with the seconds that each took when it last ran, and end
    #[arg(long)]
    list: bool,
    /// Where the results go
    #[arg(long, value_name = "FILE", default_value = "target/lab-cases.json")]
    record: PathBuf,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::from(3)
        }
    }
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn run(cli: &Cli) -> anyhow::Result<bool> {
    let wanted =
        |case: &Case| (cli.all || !case.long) && cli.only.as_ref().is_none_or(|text| case.name.contains(text.as_str()));
    let all = cases::all();
    let chosen: Vec<&Case> = all.iter().filter(|case| wanted(case)).collect();
    if cli.list {
        // Times are of any build, and a list needs none.
        let record = Record::resume(&cli.record, "");
        for case in chosen {
            say(&match record.time(case.name) {
                Some(seconds) => format!("{:66} {seconds:7.1} s", case.name),
                None => case.name.to_owned(),
            });
        }
        return Ok(true);
    }
    let mut record = Record::resume(&cli.record, &build()?);
    let open = |case: &&Case| cli.again || !record.has_passed(case.name);
    let chosen: Vec<&Case> = chosen.into_iter().filter(open).collect();
    let root = rustix::process::geteuid().is_root();
    let mut shared = Shared::default();
    let (begun, mut left) = (Instant::now(), 0);
    for (done, case) in chosen.iter().enumerate() {
        if cli.all {
            say(&record.estimate(chosen[done..].iter().map(|case| case.name)));
        }
        if cli.within.is_some_and(|minutes| !fits(minutes, begun.elapsed().as_secs_f64(), record.time(case.name))) {
            left += 1;
            continue;
        }
        let clock = Instant::now();
        let mut first_attempt = None;
        let result = if root {
            attempt(case, &mut shared).or_else(|error| {
                // Emulated processors lose an interrupt now and then, and what they ran hangs. A fault of ours fails
                // in a fresh lab as well; a lab's own does not, and the record keeps what it was.
                first_attempt = Some(format!("{error:#}"));
                say(&format!("again {:49} {:6.1} s  {error:#}", case.name, clock.elapsed().as_secs_f64()));
                shared.take_down();
                attempt(case, &mut shared)
            })
        } else {
            Ok(Verdict::CannotTry("the lab needs root".to_owned()))
        };
        let (outcome, detail) = match result {
            Ok(Verdict::Holds(detail)) => (Outcome::Passed, detail),
            Ok(Verdict::CannotTry(why)) => (Outcome::Skipped, why),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        };
        let seconds = clock.elapsed().as_secs_f64();
        let word = match outcome {
            Outcome::Passed => "ok  ",
            Outcome::Failed => "FAIL",
            Outcome::Skipped => "skip",
        };
        say(&format!("{word} {:50} {seconds:6.1} s  {}", case.name, detail.chars().take(4000).collect::<String>()));
        record.add(case.name, CaseRecord { outcome, detail, first_attempt, seconds })?;
    }
    if !cli.keep_lab {
        shared.take_down();
    }
    let (passed, failed, skipped) = record.totals();
    let minutes = record.seconds() / 60.0;
    say(&format!("{passed} passed, {failed} failed, {skipped} skipped, in {minutes:.0} min"));
    if left > 0 {
        say(&format!("{left} did not fit into the time: run the same command again"));
    }
    Ok(failed == 0 && left == 0)
}

/// Whether a case that took so many seconds last, or never ran, may begin after so many.
fn fits(minutes: u32, elapsed: f64, last: Option<f64>) -> bool {
    elapsed + last.unwrap_or_default() <= f64::from(minutes) * 60.0
}

fn attempt(case: &Case, shared: &mut Shared) -> anyhow::Result<Verdict> {
    match case.body {
        Body::Shared(labs, body) => shared.of(labs).and_then(body),
        Body::Alone(body) => {
            // Two labs at once would each be half as fast; a case that wants two boots both itself.
            shared.take_down();
            context::forget_own();
            body().inspect_err(|_| context::take_down_own(say))
        }
    }
}

/// One hash over the programs under test and this one.
fn build() -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for path in context::program_paths()?.into_iter().chain([std::env::current_exe()?]) {
        hash.update(files::read(&path)?);
    }
    Ok(format!("{:x}", hash.finalize()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_case_begins_if_by_its_last_time_it_ends_in_time() {
        use super::fits;
        assert!(fits(10, 0.0, Some(600.0)) && fits(10, 500.0, Some(100.0)) && fits(10, 599.0, None));
        assert!(!fits(10, 0.0, Some(601.0)) && !fits(10, 501.0, Some(100.0)) && !fits(10, 601.0, None));
    }
}
