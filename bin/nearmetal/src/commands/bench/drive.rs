//! `nearmetal bench drive`.

use nearmetal_host::HostFs;
use nearmetal_load::{FioJob, Workload};
use nearmetal_measure::{DriveRequest, Experiment, function_of};
use nearmetal_units::{Bytes, PciAddress};

use super::clones::CloneArgs;
use super::keep::KeepArgs;
use super::measuring::need_root;
use super::planned::PlanArgs;
use super::rounds::{RoundArgs, block_size, percent};
use super::workload::{SPAN, USUAL_SIZE};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Compare a VM that has an NVMe drive for itself with bare metal on the same drive
///
/// Host and VM take turns on one PCI function, a whole drive or a virtual function of one: bound to the host's driver,
/// and handed to a clone of the VM by VFIO. It is given back as it was found.
///
/// THE NAMESPACE'S CONTENTS ARE LOST; one that holds a file system or partitions is refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nearmetal bench drive db --pause --quick
  nearmetal bench drive db 0000:3a:00.1 --namespace 1 --pause")]
pub(super) struct Args {
    /// The VM; its plan must have been applied, or be named with --plan
    #[arg(value_name = "VM")]
    domain: String,
    /// PCI address of the drive or virtual function, such as 0000:3a:00.1 [default: the one the VM's definition assigns]
    #[arg(value_name = "FUNCTION")]
    function: Option<PciAddress>,
    /// The namespace that is written to, by its number (NSID) [default: the only one]
    #[arg(long, value_name = "NUMBER")]
    namespace: Option<u32>,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    rounds: RoundArgs,
    /// How far the interval of each ratio may reach to either side, in percent: the pairs are then a pilot, from which their
    /// number is fixed, 100 at most
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with_all = ["pairs", "quick"])]
    resolve: Option<f64>,
    /// Block size that is paired; repeat it for more [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    block_size: Vec<Bytes>,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Runs the command.
pub(super) fn drive(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.keep.run(&asked(args)?, printer)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    let journal = args.plan.journal();
    let planned = args.plan.of(&args.domain, &journal)?;
    let function = match args.function {
        Some(function) => function,
        None => function_of(&planned.change.xml_after, &args.domain)?,
    };
    need_root("starts guests and changes drivers", "")?;
    let fs = HostFs::live();
    // Each turn costs a change of drivers, so one size unless more are asked for.
    let sizes = if args.block_size.is_empty() { &[USUAL_SIZE][..] } else { &args.block_size };
    let job = |size: &Bytes| {
        let job = FioJob::first_seed(*size, args.rounds.seconds(), args.rounds.ramp());
        Workload::Fio(FioJob { span: Some(SPAN), ..job })
    };
    let conditions = args.clones.conditions(args.rounds.seed, &fs, &journal)?;
    let request = DriveRequest {
        guest: args.domain.clone(),
        conditions: args.keep.kept(conditions, &planned, &journal),
        placement: planned.placement,
        xml_planned: planned.change.xml_after,
        function,
        namespace: args.namespace,
        pairing: args.rounds.pairing(sizes.iter().map(job).collect(), args.resolve),
    };
    Ok(Experiment::Drive(Box::new(request)))
}
