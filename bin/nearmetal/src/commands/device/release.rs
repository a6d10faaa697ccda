//! `nearmetal device release`.

use nearmetal_change::devices::plan_release;

use super::carry::{CarryArgs, carry};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Return a reserved function to the host
///
/// It gets the driver it had before `device bind`, according to the journal, or else the one the kernel chooses. Refuses
/// while a guest has the function.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The function: its PCI address
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
