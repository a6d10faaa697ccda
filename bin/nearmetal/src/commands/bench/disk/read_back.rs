//! `nearmetal bench disk read-back`.

use nearmetal_hypervisor::Libvirt;
use nearmetal_load::FioJob;
use nearmetal_measure::{MatrixRequest, read_back_paths};
use nearmetal_units::Bytes;

use super::ways::WaysArgs;
use crate::commands::bench::clones::CloneArgs;
use crate::commands::bench::measuring::{need_root, watch, written};
use crate::commands::bench::race::ShowArgs;
use crate::commands::bench::workload::span;
use crate::exit_status::ExitStatus;
use crate::job::paths::paths_text;
use crate::printer::Printer;
use crate::style::Format;

/// Make every way to a disk, read each back from the kernel, and remove it again
///
/// Prints one table with what shows that each way took effect: each container with each cache and engine, and each bus,
/// queue, discard, sector size and scheduler. Nothing is raced. Exit code 1 if a way did not take effect.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  nearmetal bench disk read-back web1 --scratch /dev/nvme1n1 --scratch /srv/scratch --pause --span 16MiB")]
pub(super) struct Args {
    #[command(flatten)]
    ways: WaysArgs,
    /// A whole device, for ways on blocks: ITS CONTENTS ARE LOST; or a directory, for files. Repeat it for both
    #[arg(long, value_name = "PATH", required = true)]
    scratch: Vec<String>,
    #[command(flatten)]
    clones: CloneArgs,
    /// How much storage each way works on
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = span)]
    span: Bytes,
    #[command(flatten)]
    show: ShowArgs,
}

/// Runs the command. A way that did not take effect is a failed verification.
pub(super) fn read_back(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let (fs, request) = args.ways.request(&args.scratch, |fs, journal, _| args.clones.conditions(1, fs, journal))?;
    need_root("starts guests and drops caches", ", or see what it would do with `nearmetal bench disk list`")?;
    let job = FioJob { span: Some(args.span), ..request.job.clone() };
    let mut request = MatrixRequest { job, ..request };
    let mut libvirt = Libvirt::open(None)?;
    let table = watch(printer, |stop, tell| {
        request.conditions.stop = stop;
        read_back_paths(&request, &fs, &mut libvirt, tell)
    })?;
    let document = written(&table, args.show.output.as_deref())?;
    match args.show.format {
        Format::Json => printer.data(&document),
        Format::Text => printer.data(&paths_text(&table)),
    }
    let amiss = table.rows.iter().any(|row| row.proof.amiss.is_some());
    Ok(if amiss { ExitStatus::Findings } else { ExitStatus::Done })
}
