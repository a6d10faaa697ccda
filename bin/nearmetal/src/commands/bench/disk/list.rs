//! `nearmetal bench disk list`.

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{Hypervisor, Libvirt, Versions};
use nearmetal_load::FioJob;
use nearmetal_measure::{Ground, MatrixRequest, arms, least_seconds};
use nearmetal_results::Container;

use super::ways::{PAIRS, WaysArgs};
use crate::commands::bench::clones;
use crate::commands::bench::race::BudgetArgs;
use crate::exit_status::ExitStatus;
use crate::job::matrix::list_text;
use crate::printer::Printer;

/// List the ways to a disk that would be measured, those left out and why, and the time it takes
///
/// Measures nothing, changes nothing, and needs neither root nor libvirt.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench disk list web1 --without virtio-scsi")]
pub(super) struct Args {
    #[command(flatten)]
    ways: WaysArgs,
    /// A whole device, for ways on blocks, or a directory, for files; repeat it for both [default: as if both were named]
    #[arg(long, value_name = "PATH")]
    scratch: Vec<String>,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Fresh rounds in which the winner is measured again
    #[arg(long, value_name = "NUMBER", default_value_t = PAIRS, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
}

/// Runs the command.
pub(super) fn list(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let (fs, request) = args.ways.request(&args.scratch, |fs, journal, _| Ok(clones::none(1, fs, journal)))?;
    let job = FioJob { seconds: args.budget.seconds(), ..request.job.clone() };
    let request = MatrixRequest { job, budget: args.budget.budget, pairs: args.pairs, ..request };
    let (kept, left_out) = arms(&ground(&request, &fs));
    printer.data(&list_text(&kept, &left_out, least_seconds(&request, kept.len()), request.budget));
    Ok(ExitStatus::Done)
}

/// What decides which ways there are. Without libvirt the versions are unknown, and the ways they decide are listed.
fn ground(request: &MatrixRequest, fs: &HostFs) -> Ground {
    let versions: Option<Versions> = Libvirt::open(None).ok().and_then(|mut libvirt| libvirt.versions().ok());
    let mut ground = nearmetal_measure::ground(request, fs, &Host::read(fs), versions.as_ref());
    if request.scratch.is_empty() {
        // Nothing named yet: everything there is, so that a reader sees what a device and a directory give.
        ground.containers = Container::ALL.to_vec();
    }
    ground
}
