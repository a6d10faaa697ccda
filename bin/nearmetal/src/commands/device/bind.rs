//! `nearmetal device bind`.

use nearmetal_change::devices::{VFIO_PCI, plan_bind};

use super::carry::{CarryArgs, carry};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Reserve a function for guests: unbind the host's driver, bind vfio-pci
///
/// Refuses a function that the host itself needs (root disk, mounted file system, default route, console, an interface
/// that is up), and one whose IOMMU group the host shares. `nearmetal device list` shows the reasons; no option overrides
/// them. The binding survives a reset of the function. A reboot ends it, unless you give --persist.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The function: PCI address, interface or drive
    #[arg(value_name = "FUNCTION")]
    function: String,
    /// The driver to bind
    #[arg(value_name = "DRIVER", default_value = VFIO_PCI, value_parser = [VFIO_PCI])]
    driver: String,
    /// Bind it again at every boot before guests start (nearmetal-boot.service does this from the journal)
    #[arg(long)]
    persist: bool,
    #[command(flatten)]
    carry: CarryArgs,
}

/// Runs the verb.
pub(super) fn bind(args: &Args, printer: &mut Printer) -> ExitStatus {
    // There is one so far; the word is asked for since drivers of vendors may follow.
    debug_assert_eq!(args.driver, VFIO_PCI);
    let journal = args.carry.state.journal();
    carry(
        &args.carry,
        &args.function,
        &|machine, now, function| {
            plan_bind(machine, &now.host, &now.ledger, function, args.persist, journal.state_directory())
        },
        printer,
    )
}
