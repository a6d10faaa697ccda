//! `nearmetal bench inside`.

use nearmetal_host::HostFs;
use nearmetal_hypervisor::Libvirt;
use nearmetal_measure::{ArmKind, Environment, FioJob, OwnGuestRequest, Workload, bench_own_guest};

use super::keep::{KeepArgs, keep};
use super::measuring::{need_root, watch};
use super::planned::PlanArgs;
use super::rounds::RoundArgs;
use super::workload::{USUAL_SIZE, memory};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::installed::beside_this_program;
use crate::printer::Printer;

/// Compare a running VM itself, not clones of it, with the same slice of bare metal
///
/// Measures with the VM's own kernel, on its own block device: random reads of 4 KiB by its fio, and its memory. Nothing
/// is written. It needs the VM's guest agent, and fio in the VM. The VM is paused while the bare slice is measured, so
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
    /// Leave memory latency and bandwidth out
    #[arg(long)]
    no_memory: bool,
    #[command(flatten)]
    keep: KeepArgs,
}

/// Runs the command.
pub(super) fn inside(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if !args.pause {
        return Err(WrongUse(format!(
            "`{}` is measured against its own slice, which must be free meanwhile: allow it to be paused (--pause)",
            args.domain
        ))
        .into());
    }
    let journal = args.plan.journal();
    let planned = args.plan.of(&args.domain, &journal)?;
    need_root("pauses guests and drops caches", "")?;
    let fs = HostFs::live();
    let mut libvirt = Libvirt::open(None)?;
    let reads = FioJob { read_percent: 100, ..FioJob::first_seed(USUAL_SIZE, args.rounds.seconds(), 1) };
    let request = OwnGuestRequest {
        guest: args.domain.clone(),
        placement: planned.placement,
        design: args.rounds.two_sided(vec![Workload::Fio(reads)]),
        memory: if args.no_memory { Vec::new() } else { memory() },
        seed: args.rounds.seed,
        probe: beside_this_program("nearmetal-probe")?,
        state: journal.state_directory().to_owned(),
        environment: Environment::detect(&fs),
    };
    let results = watch(printer, ArmKind::title, |tell| bench_own_guest(&request, &fs, &mut libvirt, tell))?;
    keep(&args.keep, &results, printer)
}
