//! KVM guests at bare-metal speed, proven.
#![allow(unreachable_pub, reason = "a program has no outside; `pub` marks what other modules use")]

mod commands;
mod consent;
mod doctor;
mod drift;
mod exit_status;
mod experiment;
mod export_directory;
mod fleet;
mod guest_files;
mod guest_profile;
mod guest_request;
mod image;
mod installed;
mod job;
mod kvm;
mod live;
mod measured;
mod next_step;
mod printer;
mod read_back;
mod refusal;
mod remote;
mod results_store;
mod signals;
mod source;
mod standing;
mod state;
mod steps;
mod style;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nearmetal_measure::MeasureError;
use nearmetal_results::ResultsError;

use crate::commands::Command;
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// KVM guests at bare-metal speed, proven
///
/// nearmetal puts each KVM guest where the hardware serves it best, reads back from the kernel that the change took
/// effect, and compares the guest with the same slice of its own bare metal.
///
/// Without a command it says in ten lines where this machine stands, and which command comes next. That changes nothing
/// and runs without root.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    /// Print data and errors only
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Without a command: say where this captured machine stands, instead of this one
    // An id of its own: commands have a `--capture` too, and clap gives that of one that is global to all of its name.
    #[arg(long = "capture", id = "capture-alone", value_name = "PATH")]
    capture: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 findings or a failed verification, 2 usage error, 3 the machine refused,
130 a signal ended a measurement and everything was put back.

A first hour:
  nearmetal                            where this machine stands, and the next command
  nearmetal inspect                    what this machine is
  nearmetal doctor                     find what slows its guests
  nearmetal plan web1 -o plan.json     where web1 belongs, and why
  nearmetal apply plan.json --restart  put it there (asks first; web1 is shut down and started again)
  nearmetal verify web1                check against the kernel that it is there
  nearmetal rollback --restart         undo the last change; run it again for the one before";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut printer = Printer::new(cli.quiet);
    let result = match (cli.command, cli.capture) {
        (Some(_), Some(_)) => Err(WrongUse("give `--capture` after the command, not before it".to_owned()).into()),
        (Some(command), None) => commands::run(command, &mut printer),
        (None, capture) => standing::standing(capture.as_deref(), &mut printer),
    };
    if let Some(error) = printer.lost() {
        let words = format!("error: cannot write to stdout, so what was printed is incomplete: {error}");
        printer.important(&words);
        return ExitStatus::Refused.into();
    }
    match result {
        Ok(status) => status.into(),
        Err(error) => {
            // `{:#}` of anyhow prints the chain of causes, outermost first.
            printer.important(&format!("error: {error:#}"));
            let measuring = error.downcast_ref::<MeasureError>();
            let status = match measuring {
                Some(MeasureError::Stopped) => ExitStatus::Stopped,
                _ if error.is::<WrongUse>()
                    || measuring.is_some_and(MeasureError::is_wrong_use)
                    || error.downcast_ref().is_some_and(ResultsError::is_wrong_use) =>
                {
                    ExitStatus::WrongUse
                }
                _ => ExitStatus::Refused,
            };
            status.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_reference_is_current() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let pages = nearmetal_cli_reference::pages(Cli::command(), true);
        let checked = nearmetal_cli_reference::check(&docs, "nearmetal", &["nearmetal-probe"], &pages);
        checked.unwrap_or_else(|stale| panic!("UPDATE_GOLDENS=1 cargo test -p nearmetal reference\n{stale}"));
    }
}
