//! `nearmetal bench net race`.

use std::path::Path;

use nearmetal_host::files;
use nearmetal_measure::{Experiment, NetMatrixRequest};
use nearmetal_results::{Measurement, NetMatrixResults};

use super::tests::TestArgs;
use super::ways::{PAIRS, PeerArgs, WaysArgs};
use crate::commands::bench::clones::CloneArgs;
use crate::commands::bench::measuring::{need_root, perform, written};
use crate::commands::bench::race::{RaceArgs, ShowArgs};
use crate::exit_status::ExitStatus;
use crate::job::net_matrix::{chart, text};
use crate::printer::Printer;
use crate::style::Format;

/// Measure all ways to a network, and say which to use for this VM on this machine
///
/// Each way is read back first: one that did not take effect is reported and not measured. Then they race: in every round
/// each way left runs once, in random order; after 4, 8 and 16 rounds those shown worse leave, at an error stated
/// beforehand (--error). The winner is measured again on fresh pairs against libvirt's default and the bare slice. The
/// result is kept, and `nearmetal plan` uses it where card and kernel are the same.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  nearmetal bench net race web1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --pause")]
pub(super) struct Args {
    #[command(flatten)]
    ways: WaysArgs,
    #[command(flatten)]
    peer: PeerArgs,
    #[command(flatten)]
    tests: TestArgs,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    race: RaceArgs,
    /// Fresh rounds in which the winner is measured again
    #[arg(long, value_name = "NUMBER", default_value_t = PAIRS, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
    #[command(flatten)]
    show: ShowArgs,
}

/// Runs the command.
pub(super) fn race(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let mut experiment = asked(args)?;
    let store = experiment.conditions_mut().store.clone();
    if let Measurement::Net(results) = perform(&experiment, printer)? {
        show(args, &results, store.as_deref(), printer)?;
    }
    Ok(ExitStatus::Done)
}

/// What it is to measure.
pub(super) fn asked(args: &Args) -> anyhow::Result<Experiment> {
    args.peer.check()?;
    let (_, request) = args.ways.request(|fs, journal, planned| {
        let conditions = args.clones.conditions(args.race.seed, fs, journal)?;
        Ok(args.race.store.kept(conditions, planned, journal))
    })?;
    need_root("starts guests and takes a port", ", or see what it would do with `nearmetal bench net list`")?;
    let request = NetMatrixRequest {
        peer: args.peer.peer,
        address: args.peer.address.clone(),
        tests: args.tests.tests(),
        seconds: args.race.budget.seconds(),
        budget: args.race.budget.budget,
        error: args.race.error / 100.0,
        pairs: args.pairs,
        race: true,
        ..request
    };
    Ok(Experiment::Net(Box::new(request)))
}

fn show(args: &Args, results: &NetMatrixResults, store: Option<&Path>, printer: &mut Printer) -> anyhow::Result<()> {
    let document = written(results, args.show.output.as_deref())?;
    if let Some(path) = &args.race.chart {
        files::write_atomic(path, chart(results))?;
    }
    match args.show.format {
        Format::Json => printer.data(&document),
        Format::Text => printer.data(&text(results)),
    }
    let store = store.map(|store| store.display().to_string()).unwrap_or_default();
    printer.say(&format!("kept in {}: `nearmetal plan` uses it where card and kernel are the same", store));
    Ok(())
}
