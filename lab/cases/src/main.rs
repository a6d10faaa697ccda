//! The end-to-end cases: `./dev test` runs those that share one boot, `./dev test --all` the long ones too.
//!
//! A case is a function of a few lines in `cases/`. Results go to `target/lab-cases.json` as they come, and a second run
//! of the same build takes up where the first was interrupted.
#![allow(unreachable_pub, reason = "a program has no outside; `pub` marks what other modules use")]

mod cases;
mod context;
mod labs;
mod lanes;
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

use crate::cases::Case;
use crate::lanes::{Done, Run};
use crate::record::Record;

/// Run the end-to-end cases
#[derive(Debug, Parser)]
struct Cli {
    /// The long ones too: every fault point, power loss, reboot, two labs
    #[arg(long)]
    all: bool,
    /// Begin no case that would end later than in so many minutes, by what it took last; ends with 4 while cases are left, which
    /// the next run takes up, and with 2 if none of them fits
    #[arg(long, value_name = "MINUTES")]
    within: Option<u32>,
    /// Only cases whose name contains this; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Run cases again that passed already in this build
    #[arg(long)]
    again: bool,
    /// Leave the shared labs running; the next run uses them, or takes them down if it begins with others
    #[arg(long)]
    keep_lab: bool,
    /// Cases at a time, each in labs of its own: 1 or 2 [default: 2 on a host with two processors and 20 GiB of memory, and
    /// with --keep-lab 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2), conflicts_with = "keep_lab")]
    lanes: Option<u8>,
    /// Print the names, with the seconds that each took when it last passed, and end
    #[arg(long)]
    list: bool,
    /// Where the results go
    #[arg(long, value_name = "FILE", default_value = "target/lab-cases.json")]
    record: PathBuf,
}

/// How a run ended, and the exit code that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Every case that was chosen passed, or could not be tried.
    Passed,
    /// A case failed.
    Failed,
    /// Cases are left that did not fit into what was left of the time: the same command again takes them up.
    Left,
    /// Cases are left of which none fits into the whole time: the same command again would change nothing.
    TooShort,
}

impl End {
    /// By whether a case failed, how many are left, and how many were begun.
    fn of(failed: bool, left: usize, begun: usize) -> Self {
        match (failed, left, begun) {
            (true, ..) => Self::Failed,
            (false, 0, _) => Self::Passed,
            (false, _, 0) => Self::TooShort,
            (false, ..) => Self::Left,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed => 1,
            Self::TooShort => 2,
            Self::Left => 4,
        }
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(end) => ExitCode::from(end.code()),
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::from(3)
        }
    }
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn run(cli: &Cli) -> anyhow::Result<End> {
    let is_named = |case: &Case| cli.only.is_empty() || cli.only.iter().any(|text| case.name.contains(text.as_str()));
    let wanted = |case: &Case| (cli.all || !case.long) && is_named(case);
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
        return Ok(End::Passed);
    }
    let mut record = Record::resume(&cli.record, &build()?);
    let open = |case: &&Case| cli.again || !record.has_passed(case.name);
    let chosen: Vec<&Case> = chosen.into_iter().filter(open).collect();
    let (kept, start) = (record.take_kept(), Instant::now());
    let Done { record, begun, left } = Run::new(chosen, cli, record).all(kept, cli.keep_lab)?;
    let (passed, failed, skipped) = record.totals();
    let (minutes, cases) = (start.elapsed().as_secs_f64() / 60.0, record.seconds() / 60.0);
    say(&format!("{passed} passed, {failed} failed, {skipped} skipped; {minutes:.0} min, {cases:.0} min of cases"));
    let end = End::of(failed > 0, left.len(), begun);
    if let Some((name, seconds)) = left.iter().min_by(|one, other| one.1.total_cmp(&other.1)) {
        let count = left.len();
        say(&match begun {
            0 => format!(
                "{count} are left and none was begun: the shortest, `{name}`, needs {:.0} min; give --within that many",
                (seconds / 60.0).ceil()
            ),
            _ => format!("{count} did not fit into the time: run the same command again"),
        });
    }
    Ok(end)
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
    use super::*;

    #[test]
    fn a_loop_that_repeats_while_cases_are_left_ends() {
        assert_eq!(End::of(false, 2, 3), End::Left);
        assert_eq!(End::of(false, 2, 0), End::TooShort);
        assert_eq!(End::of(true, 2, 3), End::Failed);
        assert_eq!(End::of(false, 0, 3), End::Passed);
        let codes = [End::Passed, End::Failed, End::TooShort, End::Left].map(End::code);
        // 3 is an error of the run itself.
        assert_eq!(codes, [0, 1, 2, 4]);
    }
}
