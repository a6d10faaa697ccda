//! KVM guests at bare-metal speed, proven.
#![allow(unreachable_pub, reason = "a program has no outside; `pub` marks what other modules use")]

mod commands;
mod consent;
mod doctor;
mod exit_status;
mod fleet;
mod guest_request;
mod installed;
mod job;
mod kvm;
mod live;
mod measured;
mod printer;
mod refusal;
mod remote;
mod source;
mod state;
mod style;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// KVM guests at bare-metal speed, proven
///
/// nearmetal puts KVM guests where the hardware wants them, reads back from the kernel that it took effect, and
/// compares each guest with the same slice of its own bare metal.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    /// Print data and errors only
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 findings or a failed verification, 2 wrong use, 3 the machine refused.

A first hour:
  nearmetal inspect                  what this machine is
  nearmetal doctor                   what keeps its guests from bare-metal speed
  nearmetal plan web1 -o plan.json   where web1 belongs, and why
  nearmetal apply plan.json          put it there (asks; --restart if the guest must stop)
  nearmetal verify web1              read back what the kernel really does
  nearmetal rollback                 undo the last change (--restart if the guest must stop), again for the one before";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut printer = Printer::new(cli.quiet);
    let result = commands::run(cli.command, &mut printer);
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
            if error.is::<WrongUse>() { ExitStatus::WrongUse } else { ExitStatus::Refused }.into()
        }
    }
}
