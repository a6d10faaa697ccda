//! What every measurement begins and ends with: the right to measure, how far it is, where it is kept.

use std::path::Path;

use anyhow::bail;
use nearmetal_host::{HostFs, files};
use nearmetal_hypervisor::Libvirt;
use nearmetal_measure::{Event, Experiment, MeasureError, Stop};
use nearmetal_results::Measurement;
use serde::Serialize;

use crate::printer::Printer;
use crate::signals::Measuring;

/// Refuses anyone but root; `what` needs it, and `instead` is what others may do.
pub(super) fn need_root(what: &str, instead: &str) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!("measuring {what}: run this as root{instead}")
}

/// Runs an experiment on this machine and shows how far it is.
pub(crate) fn perform(experiment: &Experiment, printer: &mut Printer) -> anyhow::Result<Measurement> {
    let fs = HostFs::live();
    let mut experiment = experiment.clone();
    let mut libvirt = Libvirt::open(None)?;
    watch(printer, |stop, tell| {
        experiment.conditions_mut().stop = stop;
        experiment.perform(&fs, &mut libvirt, tell)
    })
}

/// Shows how far something is. The first signal asks for its end, by the wish that it is given for its conditions.
pub(super) fn watch<T>(
    printer: &mut Printer,
    experiment: impl FnOnce(Stop, &mut dyn FnMut(Event<'_>)) -> Result<T, MeasureError>,
) -> anyhow::Result<T> {
    let measuring = Measuring::begins()?;
    let bar = printer.progress(1, "measuring");
    let mut round_told = None;
    let result = experiment(measuring.stop.clone(), &mut |event| match event {
        Event::Stage(stage) => {
            bar.set_message(stage.to_owned());
            if bar.is_hidden() {
                printer.say(&format!("bench: {stage}"));
            }
        }
        // A race does not know how many runs there will be.
        Event::Run { total: 0, round, arm, load, .. } => {
            bar.set_message(format!("round {}: {arm}, {load}", round + 1));
            bar.tick();
            if bar.is_hidden() && round_told != Some(round) {
                printer.say(&format!("bench: round {}", round + 1));
            }
            round_told = Some(round);
        }
        Event::Run { done, total, arm, load, .. } => {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
            bar.set_message(format!("{arm}, {load}"));
            // Without a terminal, a line now and then shows that it lives.
            if bar.is_hidden() && done % 10 == 0 {
                printer.say(&format!("bench: run {} of {total}", done + 1));
            }
        }
    });
    bar.finish_and_clear();
    Ok(result?)
}

/// Writes results to the file asked for, if one was; gives them as JSON.
pub(super) fn written(results: &impl Serialize, output: Option<&Path>) -> anyhow::Result<String> {
    let document = serde_json::to_string_pretty(results)?;
    if let Some(path) = output {
        files::write_atomic(path, &document)?;
    }
    Ok(document)
}
