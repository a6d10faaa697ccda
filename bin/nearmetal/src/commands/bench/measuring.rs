//! What every measurement begins and ends with: the right to measure, how far it is, the file it is written to.

use std::path::Path;

use anyhow::bail;
use nearmetal_host::files;
use nearmetal_measure::{ArmKind, Event, MeasureError};
use serde::Serialize;

use crate::printer::Printer;

/// Refuses anyone but root; `what` needs it, and `instead` is what others may do.
pub(super) fn need_root(what: &str, instead: &str) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    bail!("measuring {what}: run this as root{instead}")
}

/// Runs an experiment and shows how far it is; `title` is what a person calls an arm.
pub(super) fn watch<T>(
    printer: &mut Printer,
    title: fn(ArmKind) -> &'static str,
    experiment: impl FnOnce(&mut dyn FnMut(Event<'_>)) -> Result<T, MeasureError>,
) -> anyhow::Result<T> {
    let bar = printer.progress(1, "measuring");
    let mut round_told = None;
    let result = experiment(&mut |event| match event {
        Event::Stage(stage) => {
            bar.set_message(stage.to_owned());
            if bar.is_hidden() {
                printer.say(&format!("bench: {stage}"));
            }
        }
        Event::Turn { round, arm, racing } => {
            bar.set_message(format!("round {}, {racing} arms: {arm}", round + 1));
            bar.tick();
            if bar.is_hidden() && round_told != Some(round) {
                printer.say(&format!("bench: round {}, {racing} arms", round + 1));
            }
            round_told = Some(round);
        }
        Event::Step { index, total, step } => {
            bar.set_length(total as u64);
            bar.set_position(index as u64);
            bar.set_message(format!("{} {}", title(step.arm), step.workload.label()));
            // Without a terminal, a line now and then shows that it lives.
            if bar.is_hidden() && index % 10 == 0 {
                printer.say(&format!("bench: run {} of {total}", index + 1));
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
