//! Where a measurement is kept, and what is printed of it.

use std::path::PathBuf;

use nearmetal_change::Journal;
use nearmetal_measure::{Conditions, Experiment, Measurement};

use super::measuring::{perform, written};
use super::planned::Planned;
use crate::exit_status::ExitStatus;
use crate::job::{compared, matrix, net_matrix};
use crate::measured::STORE;
use crate::printer::Printer;

/// Where all runs go.
#[derive(Debug, clap::Args)]
pub(super) struct KeepArgs {
    /// Write all runs here as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

/// The store.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArgs {
    /// Keep every run in this SQLite store as it ends [default: results.sqlite in the state directory]
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

impl StoreArgs {
    /// Its path.
    pub(super) fn path(&self, journal: &Journal) -> PathBuf {
        self.store.clone().unwrap_or_else(|| journal.state_directory().join(STORE))
    }

    /// The conditions of a measurement that this store keeps.
    pub(super) fn kept(&self, conditions: Conditions, planned: &Planned, journal: &Journal) -> Conditions {
        Conditions { store: Some(self.path(journal)), plan: Some(planned.created.clone()), ..conditions }
    }
}

impl KeepArgs {
    /// See [`StoreArgs::kept`].
    pub(super) fn kept(&self, conditions: Conditions, planned: &Planned, journal: &Journal) -> Conditions {
        self.store.kept(conditions, planned, journal)
    }

    /// Runs an experiment, writes its results where they were asked for, and shows them.
    pub(super) fn run(&self, experiment: &Experiment, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
        let measurement = perform(experiment, printer)?;
        match &measurement {
            Measurement::Results(results) => written(results, self.output.as_deref())?,
            Measurement::Disk(results) => written(results, self.output.as_deref())?,
            Measurement::Net(results) => written(results, self.output.as_deref())?,
        };
        printer.data(&text(&measurement)?);
        Ok(ExitStatus::Done)
    }
}

/// A measurement for people.
pub(super) fn text(measurement: &Measurement) -> anyhow::Result<String> {
    Ok(match measurement {
        Measurement::Results(results) => compared::text(results)?,
        Measurement::Disk(results) => matrix::text(results),
        Measurement::Net(results) => net_matrix::text(results),
    })
}
