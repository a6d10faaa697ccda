//! `nearmetal bench slice`.

use nearmetal_measure::{Experiment, SliceArm, SliceRequest};

use super::on_scratch::OnScratchArgs;
use super::rounds::one_of;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Compare a VM with the same slice of bare metal
///
/// Runs the same workload with the same arguments in clones of the VM (as found, as planned, as virt-install writes it)
/// and on the host itself, bound to exactly the VM's PUs and node. Each arm has an equal region of one scratch device.
/// Only one arm runs at a time; the order is drawn at random in every round; ratios carry a 95 % interval. --arm chooses the
/// clones; without `planned`, A/A pairs are those of the first one. A lab counts accesses to memory only where `as-found` and
/// `planned` are both there.
///
/// The scratch device's contents are lost. It must be empty, and should be of the kind that the VM's disk is on.
///
/// Clones are booted for every round. With --quick they stay up, only 4 KiB is paired, and every other block size runs
/// once for 2 s.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench slice web1 --scratch /dev/nvme1n1 --quick --pause")]
pub(super) struct Args {
    #[command(flatten)]
    on: OnScratchArgs,
    /// A clone to compare with bare metal; repeat --arm for more [default: all three]
    #[arg(long, value_name = "ARM", value_parser = one_of(&SliceArm::ALL, SliceArm::id))]
    arm: Vec<SliceArm>,
}

/// Runs the command.
pub(super) fn slice(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.on.keep.run(&asked(args)?, printer)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    let (on, conditions) = args.on.asked()?;
    let arms = if args.arm.is_empty() { SliceArm::ALL.to_vec() } else { args.arm.clone() };
    Ok(Experiment::Slice(Box::new(SliceRequest { on, arms, conditions })))
}
