//! `nearmetal bench net`: one file for each of its commands.

mod list;
mod race;
mod read_back;
mod tests;
mod ways;

pub(super) use tests::test;
pub(super) use ways::checked_address;

use nearmetal_measure::Experiment;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Find the fastest way for a VM to reach a network: vhost-net, user space, macvtap, virtual functions
///
/// The ways are cards of a clone of the VM, on one port, against a *peer*: a machine at the other end of the port's cable.
/// `list` shows which ways there are and what the peer must run, `read-back` makes each and sees that it took effect,
/// `race` measures them and says which to use; `nearmetal plan` then uses it. docs/guides/net-matrix.md begins at the
/// beginning.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nearmetal bench net list web1 --port enp57s0
  nearmetal bench net read-back web1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --pause
  nearmetal bench net race web1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --pause")]
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
pub(super) fn net(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
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
