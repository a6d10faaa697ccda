//! `nearmetal experiment list`.

use nearmetal_report::papers::{experiments, papers_of};

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// List the experiments: the question of each, its papers, about how long it takes
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// Runs the command.
pub(super) fn list(_: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let mut text = String::new();
    for words in experiments() {
        text.push_str(&format!("{}\n  {}\n", words.name, words.question));
        for paper in papers_of(&words.name) {
            text.push_str(&format!("  from {paper}\n"));
        }
        text.push_str(&format!("  {}\n\n", words.time));
    }
    printer.data(text.trim_end());
    printer.say("next: `nearmetal experiment show NAME` says what the paper did, what differs and what it needs");
    Ok(ExitStatus::Done)
}
