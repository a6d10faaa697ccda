//! `nearmetal bench pages`.

use nearmetal_measure::{Experiment, PagesRequest};

use super::on_scratch::OnScratchArgs;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Find out what huge pages and pins are worth, alone and together
///
/// Runs the same workload in four clones of the VM as planned: with neither huge pages nor pins, with one of the two, and with
/// both; and on the same slice of bare metal. Transparent huge pages are off on the host while a clone in small pages is up,
/// and what the memory of each clone is in is read back from the kernel before every sample. The plan must set both.
///
/// All arms work on equal regions of one scratch device, and run in turns whose order is drawn at random. One clone is up at a
/// time, booted afresh for every sample. The pool of huge pages stays while one in small pages is up, so the VM's node needs
/// free memory for two clones beside the VM. The scratch device's contents are lost. It must be empty, and should be on the
/// same drive as the VM's disk.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench pages web1 --scratch /dev/nvme1n1 --workload oltp --quick --pause")]
pub(super) struct Args {
    #[command(flatten)]
    on: OnScratchArgs,
}

/// Runs the command.
pub(super) fn pages(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.on.keep.run(&asked(args)?, printer)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    let (on, conditions) = args.on.asked()?;
    Ok(Experiment::Pages(Box::new(PagesRequest { on, conditions })))
}
