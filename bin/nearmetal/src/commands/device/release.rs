//! `nearmetal device release`.

use nearmetal_change::devices::plan_release;

use super::carry::{CarryArgs, carry};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Give a function that was set aside back to the host
///
/// Its driver is the one it had before `device bind`, as the journal has it, or else the one the kernel chooses. Refused
/// while a guest has it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The function: PCI address
    #[arg(value_name = "FUNCTION")]
    function: String,
    #[command(flatten)]
    carry: CarryArgs,
}

/// Runs the verb.
pub(super) fn release(args: &Args, printer: &mut Printer) -> ExitStatus {
    let journal = args.carry.state.journal();
    carry(
        &args.carry,
        &args.function,
        &|machine, now, function| plan_release(machine, &now.host, &now.ledger, function, &journal.transactions()?),
        printer,
    )
}
