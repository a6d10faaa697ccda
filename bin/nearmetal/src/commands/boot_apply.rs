//! `nearmetal boot-apply`.

use nearmetal_change::{ChangeError, HostIdentity, Machine, boot};
use nearmetal_host::HostFs;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::refusal::{NoLibvirt, refuse};
use crate::state::{StateArgs, warn_of_unfinished};

/// Re-apply after boot what a reboot loses (run by nearmetal-boot.service)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    state: StateArgs,
}

/// Runs the command.
pub(crate) fn boot_apply(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match run(&args, printer) {
        Ok(status) => Ok(status),
        Err(error) => Ok(refuse(printer, &error)),
    }
}

fn run(args: &Args, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    let journal = args.state.journal();
    let files = HostFs::live();
    // It waits for this command, so it cannot be asked from here.
    let mut libvirt = NoLibvirt { reason: "libvirt has not started yet".to_owned() };
    let mut machine = Machine::here(&files, &mut libvirt, HostIdentity::unread())?;
    warn_of_unfinished(&journal, printer);
    let mut failed = false;
    // Lines of the system's journal.
    for made in boot::reapply(&mut machine, &journal)? {
        match made.result {
            Ok(()) => printer.say(&format!("transaction {}: {}: done, read back", made.transaction, made.change)),
            Err(error) => {
                failed = true;
                printer.important(&format!("transaction {}: {}: {error}", made.transaction, made.change));
            }
        }
    }
    Ok(if failed { ExitStatus::Findings } else { ExitStatus::Done })
}
