//! `nearmetal after-start`.

use nearmetal_change::{ChangeError, follow};
use nearmetal_host::HostFs;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::refusal::refuse;
use crate::state::StateArgs;

/// Set what libvirt has no element for, beside a guest that it has just started (run by its qemu hook)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The domain
    #[arg(value_name = "DOMAIN")]
    domain: String,
    #[command(flatten)]
    state: StateArgs,
}

/// Runs the command.
pub(crate) fn after_start(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match run(&args, printer) {
        Ok(()) => Ok(ExitStatus::Done),
        Err(error) => Ok(refuse(printer, &error)),
    }
}

fn run(args: &Args, printer: &mut Printer) -> Result<(), ChangeError> {
    // Lines of the system's journal.
    follow(&HostFs::live(), &args.state.journal(), &args.domain, &mut |text| printer.say(text))
}
