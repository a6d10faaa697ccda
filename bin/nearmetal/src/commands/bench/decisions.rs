//! `nearmetal bench decisions`.

use nearmetal_measure::{DecisionsRequest, Experiment};

use super::on_scratch::OnScratchArgs;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Find out what each decision of a plan is worth
///
/// A plan sets pins, the memory's node, its page size, an iothread, the disk's cache mode and its engine at once. This runs
/// the same workload in the VM as planned, in clones that each lack one of these decisions, and on the same slice of bare
/// metal. The ratio of the VM as planned to such a clone is what the decision is worth beside the others: 1.00× gained
/// nothing, and below 1 it costs. Decisions that the plan does not make have no arm.
///
/// All arms are clones on equal regions of one scratch device, and run in turns whose order is drawn at random. One clone
/// is up at a time, booted afresh for every sample. The VM's node needs free memory for one beside the VM, or for two where
/// the plan sets huge pages: their pool stays while the clone without them is up. The scratch device's contents are lost.
/// It must be empty, and should be of the kind that the VM's disk is on.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench decisions web1 --scratch /dev/nvme1n1 --quick --pause")]
pub(super) struct Args {
    #[command(flatten)]
    on: OnScratchArgs,
}

/// Runs the command.
pub(super) fn decisions(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.on.keep.run(&asked(args)?, printer)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    let (on, conditions) = args.on.asked()?;
    Ok(Experiment::Decisions(Box::new(DecisionsRequest { on, conditions })))
}
