//! `nearmetal experiment`: one file for each of its commands.

mod course;
mod list;
mod run;
mod show;
mod steps;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Run a published experiment on this host, with the paper's figures beside
///
/// Each experiment answers one question that a paper on KVM answered, by the measurements of `nearmetal bench`, and makes a
/// page with the paper's figures, what was found here, and what may be concluded. `list` names them, `show` says what the paper
/// did and what differs, `run` runs one.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal experiment list
  nearmetal experiment show numa-modes
  nearmetal experiment run numa-modes web1 --quick --pause
  nearmetal experiment run net-paths web1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --quick --pause";

#[derive(Debug, clap::Subcommand)]
enum What {
    List(list::Args),
    Show(show::Args),
    Run(run::Args),
}

/// Runs one of them.
pub(crate) fn experiment(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match args.what {
        What::List(args) => list::list(&args, printer),
        What::Show(args) => show::show(&args, printer),
        What::Run(args) => run::run(&args, printer),
    }
}
