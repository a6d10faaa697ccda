//! `nearmetal fleet example`.

use nearmetal_fleet::file::EXAMPLE;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Print a commented fleet file that shows every key
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn example(_: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    printer.data(EXAMPLE);
    printer.say("to write one of the domains here instead: nearmetal fleet init -o fleet.toml");
    Ok(ExitStatus::Done)
}
