//! `nearmetal bench together`: several VMs at once, over scratch devices, drives of their own, or one network port.

mod args;
mod drives;
mod port;
mod scratch;

pub(super) use args::Args;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Runs the command.
pub(super) fn together(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.check()?;
    let journal = args.plan.journal();
    match &args.net.port {
        Some(port) => port::through(args, port, &journal, printer),
        None if args.drives => drives::each_its_own(args, &journal, printer),
        None => scratch::each_a_device(args, &journal, printer),
    }
}
