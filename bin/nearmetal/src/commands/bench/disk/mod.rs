//! `nearmetal bench disk`: one file for each of its commands.

mod list;
mod race;
mod read_back;
mod ways;

use nearmetal_measure::Experiment;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Find the fastest way for a VM to reach its disk: cache, I/O engine, iothreads, queues, bus, container
///
/// The ways are disks of a clone of the VM. `list` shows which there are, `read-back` makes each and sees that it took
/// effect, `race` measures them and says which to use; `nearmetal plan` then uses it. docs/guides/disk-matrix.md takes you
/// through them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nearmetal bench disk list web1
  nearmetal bench disk read-back web1 --scratch /dev/nvme1n1 --scratch /srv/scratch --pause
  nearmetal bench disk race web1 --scratch /dev/nvme1n1 --pause --budget 1800")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    List(list::Args),
    ReadBack(read_back::Args),
    Race(race::Args),
}

/// Runs one of them.
pub(super) fn disk(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match &args.what {
        What::List(args) => list::list(args, printer),
        What::ReadBack(args) => read_back::read_back(args, printer),
        What::Race(args) => race::race(args, printer),
    }
}

/// What a race is to measure; `None` of commands that measure nothing.
pub(super) fn asked(args: &Args) -> Option<anyhow::Result<Experiment>> {
    match &args.what {
        What::Race(args) => Some(race::asked(args)),
        What::List(_) | What::ReadBack(_) => None,
    }
}
