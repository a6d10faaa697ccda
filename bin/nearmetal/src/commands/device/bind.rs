//! `nearmetal device bind`.

use nearmetal_change::devices::{VFIO_PCI, plan_bind};

use super::carry::{CarryArgs, carry};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Set a function aside for guests: take it from the host's driver, give it to vfio-pci
///
/// Refused, with the reason, for a function the host itself needs (root disk, mounted file system, default route, console,
/// an interface that is up), and for one whose IOMMU group the host shares: `nearmetal device list` shows each reason. There
/// is no way to force it. The binding survives a reset of the function; a reboot ends it unless --persist is given.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The function: PCI address, interface or drive
    #[arg(value_name = "FUNCTION")]
    function: String,
    /// The driver that hands it to guests
    #[arg(value_name = "DRIVER", default_value = VFIO_PCI, value_parser = [VFIO_PCI])]
    driver: String,
    /// Set it aside again at every boot, before guests start (by nearmetal-boot.service, from the journal)
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
