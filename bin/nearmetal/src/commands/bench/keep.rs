//! Where a measurement is kept, and what is printed of it.

use std::path::{Path, PathBuf};

use nearmetal_change::Journal;
use nearmetal_measure::{Conditions, Experiment};
use nearmetal_report::view::IncompleteArm;
use nearmetal_results::Measurement;

use super::measuring::{perform, written};
use super::planned::Planned;
use crate::exit_status::ExitStatus;
use crate::job::arms::incomplete;
use crate::job::measurement::text;
use crate::printer::Printer;
use crate::results_store::StoreArgs;

/// Where all runs go.
#[derive(Debug, clap::Args)]
pub(super) struct KeepArgs {
    /// Write all runs here as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

impl StoreArgs {
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
        if let Some(path) = &self.output {
            write(&measurement, path)?;
        }
        printer.data(&text(&measurement)?);
        match &self.output {
            Some(path) => printer.say(&format!("to see it as a page: nearmetal report {}", path.display())),
            None => printer.say("to find it again beside earlier ones: nearmetal bench history"),
        }
        Ok(ended(&measurement, printer))
    }
}

/// Writes a measurement's document.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(measurement: &Measurement, path: &Path) -> anyhow::Result<()> {
    match measurement {
        Measurement::Results(results) => written(results, Some(path)),
        Measurement::Disk(results) => written(results, Some(path)),
        Measurement::Net(results) => written(results, Some(path)),
    }
    .map(drop)
}

/// The arms that lost samples, a sentence each. A race drops such an arm and says so.
pub(crate) fn lost(measurement: &Measurement) -> Vec<String> {
    let Measurement::Results(results) = measurement else { return Vec::new() };
    let told = |arm: &IncompleteArm| {
        let (name, failed, samples, why) = (&arm.arm, arm.failed, arm.samples, &arm.why);
        format!("the arm `{name}` is incomplete: {failed} of {samples} samples failed: {why}")
    };
    incomplete(results).iter().map(told).collect()
}

/// How a measurement ended: arms that lost samples are findings, and are named.
pub(super) fn ended(measurement: &Measurement, printer: &mut Printer) -> ExitStatus {
    let lost = lost(measurement);
    lost.iter().for_each(|arm| printer.important(arm));
    if lost.is_empty() { ExitStatus::Done } else { ExitStatus::Findings }
}
