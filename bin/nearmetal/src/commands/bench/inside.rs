//! `nearmetal bench inside`.

use nearmetal_host::HostFs;
use nearmetal_load::Shape;
use nearmetal_measure::{Conditions, Experiment, InsideRequest, Pairing};

use super::clones;
use super::keep::KeepArgs;
use super::measuring::need_root;
use super::planned::{PlanArgs, shape};
use super::rounds::{RoundArgs, percent};
use super::workload::{Chosen, MemoryArgs, one};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::installed::beside_this_program;
use crate::printer::Printer;

/// Compare a running VM itself, not clones of it, with the same slice of bare metal
///
/// Measures with the VM's own kernel, on its own block device: random reads of 4 KiB by its fio, and its memory. Nothing
/// is written. It needs the VM's guest agent, and the workload's program (fio or zstd) in the VM. The VM is paused while the bare slice is measured, so
/// --pause must be given.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench inside web1 --pause --quick")]
pub(super) struct Args {
    /// The VM; it must run as its plan says
    #[arg(value_name = "VM")]
    domain: String,
    /// Allow the VM to be paused while its slice is measured
    #[arg(long)]
    pause: bool,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    rounds: RoundArgs,
    /// How far the interval of the ratio may reach to either side, in percent: the pairs are then a pilot, from which their
    /// number is fixed, 100 at most
    #[arg(long, value_name = "PERCENT", value_parser = percent, conflicts_with_all = ["pairs", "quick"])]
    resolve: Option<f64>,
    /// What is run
    #[arg(long, value_name = "WORKLOAD", value_parser = one(|load| !load.writes() && !load.needs_loads_image()), default_value = "random-read")]
    workload: Chosen,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Runs the command.
pub(super) fn inside(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.keep.run(&asked(args)?, printer)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    if !args.pause {
        return Err(WrongUse(format!(
            "`{}` is measured against its own slice, which must be free meanwhile: allow it to be paused (--pause)",
            args.domain
        ))
        .into());
    }
    let journal = args.plan.journal();
    need_root("pauses guests and drops caches", "")?;
    let planned = args.plan.of(&args.domain, &journal)?;
    let fs = HostFs::live();
    let shape = Shape {
        size: args.workload.usual_size(),
        seconds: args.rounds.seconds(),
        ..shape(&planned.change.xml_after, &planned.placement, &args.workload, &fs)?
    };
    let conditions = Conditions {
        probe: beside_this_program("nearmetal-probe")?,
        pause: true,
        ..clones::none(args.rounds.seed, &fs, &journal)
    };
    let request = InsideRequest {
        guest: args.domain.clone(),
        conditions: args.keep.kept(conditions, &planned, &journal),
        placement: planned.placement,
        pairing: Pairing {
            memory: args.memory.workloads(),
            ..args.rounds.pairing(args.workload.of(&shape), args.resolve)
        },
    };
    Ok(Experiment::Inside(Box::new(request)))
}
