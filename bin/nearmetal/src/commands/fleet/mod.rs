//! `nearmetal fleet`: one file for each of its commands.

mod check;
mod example;
mod found;
mod import;
mod init;
mod watch;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Describe many VMs on many hosts in one file, and watch the hosts
///
/// A fleet file says which VMs you want, and on which hosts they may run (docs/reference/fleet-file.md).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Init(init::Args),
    Check(check::Args),
    Example(example::Args),
    Import(import::Args),
    Watch(watch::Args),
}

/// Runs one of them.
pub(crate) fn fleet(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match args.action {
        Action::Init(args) => init::init(&args, printer),
        Action::Check(args) => check::check(&args, printer),
        Action::Example(args) => example::example(&args, printer),
        Action::Import(args) => import::import(&args, printer),
        Action::Watch(args) => watch::watch(&args, printer),
    }
}
