//! `nearmetal bench disk race`.

use std::path::Path;

use nearmetal_host::files;
use nearmetal_load::{FioJob, Shape, Workload, WorksOn};
use nearmetal_measure::{Experiment, MatrixRequest};
use nearmetal_results::{MatrixResults, Measurement};
use nearmetal_units::Bytes;

use super::ways::{PAIRS, WaysArgs};
use crate::commands::bench::clones::CloneArgs;
use crate::commands::bench::measuring::{need_root, perform, written};
use crate::commands::bench::planned::shape;
use crate::commands::bench::race::{RaceArgs, ShowArgs};
use crate::commands::bench::rounds::block_size;
use crate::commands::bench::workload::{Chosen, USUAL, one, span};
use crate::exit_status::ExitStatus;
use crate::job::matrix::{chart, text};
use crate::printer::Printer;
use crate::style::Format;

/// Measure all ways to a disk, and say which to use for this VM on this machine
///
/// Each way is read back first: one that did not take effect is reported and not measured. Then they race: in every round
/// each way left runs once, in random order; after 4, 8 and 16 rounds those shown worse leave, at an error stated
/// beforehand (--error). The winner is measured again on fresh pairs against QEMU's default and the bare slice. The result
/// is kept, and `nearmetal plan` uses it where drive and kernel are the same.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench disk race web1 --scratch /dev/nvme1n1 --pause --budget 1800")]
pub(super) struct Args {
    #[command(flatten)]
    ways: WaysArgs,
    /// A whole device, for ways on blocks: ITS CONTENTS ARE LOST; or a directory, for files. Repeat it for both
    #[arg(long, value_name = "PATH", required = true)]
    scratch: Vec<String>,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    race: RaceArgs,
    /// Fresh rounds in which the winner is measured again
    #[arg(long, value_name = "NUMBER", default_value_t = PAIRS, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
    /// What is run
    #[arg(long, value_name = "WORKLOAD", value_parser = one(|load| load.on != WorksOn::Processors && !load.needs_loads_image()), default_value = USUAL)]
    workload: Chosen,
    /// Block size [default: 4KiB, iozone 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    block_size: Option<Bytes>,
    /// How much storage each way works on
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = span)]
    span: Bytes,
    #[command(flatten)]
    show: ShowArgs,
}

/// Runs the command.
pub(super) fn race(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let mut experiment = asked(args)?;
    let store = experiment.conditions_mut().store.clone();
    if let Measurement::Disk(results) = perform(&experiment, printer)? {
        show(args, &results, store.as_deref(), printer)?;
    }
    Ok(ExitStatus::Done)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    args.workload.check(args.race.budget.has_seconds(), false, None)?;
    let (fs, request) = args.ways.request(&args.scratch, |fs, journal, planned| {
        let conditions = args.clones.conditions(args.race.seed, fs, journal)?;
        Ok(args.race.store.kept(conditions, planned, journal))
    })?;
    need_root("starts guests and drops caches", ", or see what it would do with `nearmetal bench disk list`")?;
    let shape = shape(&request.xml, &request.placement, &args.workload, &fs)?;
    Ok(Experiment::Disk(Box::new(args.run(request, &shape))))
}

impl Args {
    /// The request with what a race adds to it.
    fn run(&self, request: MatrixRequest, shape: &Shape) -> MatrixRequest {
        let (size, seconds) = (self.block_size.unwrap_or(self.workload.usual_size()), self.race.budget.seconds());
        // Of the storage of an arm a quarter is left for a file system's own tables.
        let files_span = Bytes::new(self.span.get() / 4 * 3);
        let (mut job, mut files) = (FioJob::first_seed(size, seconds, 1), None);
        for workload in self.workload.of(&Shape { size, seconds, ramp: 1, span: files_span, ..*shape }) {
            match workload {
                Workload::Fio(only) => job = only,
                Workload::FileSystem(only) => files = Some(only),
                _ => {}
            }
        }
        job.span = Some(self.span);
        MatrixRequest {
            job,
            files,
            budget: self.race.budget.budget,
            error: self.race.error / 100.0,
            pairs: self.pairs,
            ..request
        }
    }
}

fn show(args: &Args, results: &MatrixResults, store: Option<&Path>, printer: &mut Printer) -> anyhow::Result<()> {
    let document = written(results, args.show.output.as_deref())?;
    if let Some(path) = &args.race.chart {
        files::write_atomic(path, chart(results))?;
    }
    match args.show.format {
        Format::Json => printer.data(&document),
        Format::Text => printer.data(&text(results)),
    }
    let store = store.map(|store| store.display().to_string()).unwrap_or_default();
    printer.say(&format!("kept in {}: `nearmetal plan` uses it where drive and kernel are the same", store));
    Ok(())
}
