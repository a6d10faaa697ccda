//! `nearmetal lab ssh-config`.

use nearmetal_lab::Places;

use super::open;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Print an ssh configuration for a lab, for programs that call ssh themselves
///
/// For example: `nearmetal lab ssh-config a > a.ssh`, then `ssh -F a.ssh a`. In a fleet file: `ssh = "a"` and
/// `ssh-command = "ssh -F a.ssh"`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the lab
    #[arg(default_value = "quad")]
    name: String,
}

/// Prints the section.
pub fn ssh_config(args: &Args, places: &Places, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    printer.data(&open(places, &args.name)?.ssh_config());
    Ok(ExitStatus::Done)
}
