//! `nearmetal experiment run`.

use std::path::PathBuf;

use nearmetal_report::experiment_text;
use nearmetal_report::papers::experiment;

use super::course::{Course, begun, claimed};
use super::steps::Which;
use crate::commands::bench::asked;
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;
use crate::style::{Format, style};

/// Run an experiment: all its measurements, and a page with the paper's figures beside ours
///
/// Every step is a command of `nearmetal bench`, which --dry-run prints. Their documents, a page for each and the
/// experiment's own page go into one directory. A step that fails does not keep the others from running; it is named in the page,
/// and the command then ends with 3. The same command goes on after an interruption.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nearmetal experiment run numa-modes web1 --quick --pause
  nearmetal experiment run images-io web1 --directory /srv/scratch --quick --pause
  nearmetal experiment run passthrough-io db0 db1 db2 db3 --quick --dry-run")]
pub(super) struct Args {
    #[command(subcommand)]
    which: Which,
}

/// Runs the command.
pub(super) fn run(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let which = &args.which;
    let (name, common, steps) = (which.name(), which.common(), which.steps());
    if common.dry_run {
        let lines: String = steps.iter().map(|step| step.command() + "\n").collect();
        printer.data(&lines);
        return Ok(ExitStatus::Done);
    }
    let words = experiment(name).ok_or_else(|| WrongUse(format!("no experiment is called `{name}`")))?;
    // What words, plans and rights rule out is said before the first step runs for hours.
    for step in &steps {
        asked(&step.words)?;
    }
    let directory = common.output.clone().unwrap_or_else(|| PathBuf::from(format!("experiment-{name}")));
    let _claim = claimed(&directory)?;
    let view = begun(&directory, words, which, &steps)?;
    let mut course = Course::new(directory, view);
    course.run(&steps, printer)?;
    match common.format {
        Format::Text => printer.data(&experiment_text(&course.view, &style(printer))),
        Format::Json => printer.data(&serde_json::to_string_pretty(&course.view)?),
    }
    Ok(course.conclude(printer))
}
