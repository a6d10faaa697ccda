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
use crate::labs::{Labs, Shared};
use crate::record::{CaseRecord, Outcome, Record};

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
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run cases again that passed already in this build
    #[arg(long)]
    again: bool,
    /// Leave the shared labs running; the next run uses them, or takes them down if it begins with others
    #[arg(long)]
    keep_lab: bool,
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
        return Ok(End::Passed);
    }
    let mut record = Record::resume(&cli.record, &build()?);
    let open = |case: &&Case| cli.again || !record.has_passed(case.name);
    let chosen: Vec<&Case> = chosen.into_iter().filter(open).collect();
    let root = rustix::process::geteuid().is_root();
    let mut shared = Shared::left(record.take_kept());
    let (start, mut begun, mut left) = (Instant::now(), 0, Vec::new());
    for (done, case) in chosen.iter().enumerate() {
        if cli.all {
            say(&record.estimate(&chosen[done..], shared.kind()));
        }
        let needs = record.needs(case, shared.kind());
        if cli.within.is_some_and(|minutes| !fits(minutes, start.elapsed().as_secs_f64(), needs)) {
            left.push((case.name, needs.unwrap_or_default()));
            continue;
        }
        begun += 1;
        let clock = Instant::now();
        let tried = if root {
            try_twice(case, &mut shared)
        } else {
            Tried::without_lab(Ok(Verdict::CannotTry("the lab needs root".to_owned())))
        };
        let (outcome, detail) = match tried.result {
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
        if let Some((labs, seconds)) = tried.boot {
            record.booted(labs, seconds);
        }
        record.add(
            case.name,
            CaseRecord { outcome, detail, first_attempt: tried.first_attempt, seconds },
            tried.took,
        )?;
    }
    if !cli.keep_lab {
        shared.take_down();
    }
    record.keep(shared.kind())?;
    let (passed, failed, skipped) = record.totals();
    let minutes = record.seconds() / 60.0;
    say(&format!("{passed} passed, {failed} failed, {skipped} skipped, in {minutes:.0} min"));
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

/// Whether a case that needs so many seconds, or never passed, may begin after so many.
fn fits(minutes: u32, elapsed: f64, needs: Option<f64>) -> bool {
    elapsed + needs.unwrap_or_default() <= f64::from(minutes) * 60.0
}

/// What came of trying a case.
struct Tried {
    result: anyhow::Result<Verdict>,
    /// How a first attempt failed, where a second one was made.
    first_attempt: Option<String>,
    /// The boot of shared labs within the last attempt: which, and how many seconds it took.
    boot: Option<(Labs, f64)>,
    /// Wall seconds of the last attempt without that boot.
    took: f64,
}

impl Tried {
    fn without_lab(result: anyhow::Result<Verdict>) -> Self {
        Self { result, first_attempt: None, boot: None, took: 0.0 }
    }
}

/// Emulated processors lose an interrupt now and then, and what they ran hangs. A fault of ours fails in a fresh lab as well; a
/// lab's own does not, and the record keeps what it was.
fn try_twice(case: &Case, shared: &mut Shared) -> Tried {
    let clock = Instant::now();
    let first = attempt(case, shared);
    let error = match &first.result {
        Err(error) if !(case.labs().is_none() && context::keeps_own()) => format!("{error:#}"),
        _ => return first,
    };
    say(&format!("again {:49} {:6.1} s  {error}", case.name, clock.elapsed().as_secs_f64()));
    shared.take_down();
    Tried { first_attempt: Some(error), ..attempt(case, shared) }
}

fn attempt(case: &Case, shared: &mut Shared) -> Tried {
    let clock = Instant::now();
    let result = match case.body {
        Body::Shared(labs, body) => shared.of(labs).and_then(body),
        Body::Alone(body) => {
            // Two labs at once would each be half as fast; a case that wants two boots both itself.
            shared.take_down();
            context::forget_own();
            body().inspect_err(|_| {
                if !context::keeps_own() {
                    context::take_down_own(say);
                }
            })
        }
    };
    let boot = shared.booted();
    let took = clock.elapsed().as_secs_f64() - boot.map_or(0.0, |(_, seconds)| seconds);
    Tried { boot, took, ..Tried::without_lab(result) }
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
    fn a_case_begins_if_by_its_last_time_it_ends_in_time() {
        assert!(fits(10, 0.0, Some(600.0)) && fits(10, 500.0, Some(100.0)) && fits(10, 599.0, None));
        assert!(!fits(10, 0.0, Some(601.0)) && !fits(10, 501.0, Some(100.0)) && !fits(10, 601.0, None));
    }

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
