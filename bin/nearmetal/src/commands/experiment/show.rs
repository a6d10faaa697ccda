//! `nearmetal experiment show`.

use nearmetal_report::papers::{Words, experiment, experiments, of_experiment, of_unit};

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Say what the paper did, what this does, what differs, and what it needs
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal experiment show numa-modes")]
pub(super) struct Args {
    /// The experiment
    #[arg(value_name = "NAME", value_parser = named)]
    words: Words,
}

fn named(name: &str) -> Result<Words, String> {
    experiment(name).ok_or_else(|| {
        let known: Vec<String> = experiments().into_iter().map(|words| words.name).collect();
        format!("no experiment is called `{name}`: write one of {}", known.join(", "))
    })
}

/// Runs the command.
pub(super) fn show(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let words = &args.words;
    let name = &words.name;
    let mut text = format!("{}\n\nThe paper: {}\nHere: {}\n", words.question, words.did, words.does);
    let mut part = |title: &str, lines: &[String]| {
        text.push_str(&format!("\n{title}\n"));
        text.extend(lines.iter().map(|line| format!("- {line}\n")));
    };
    part("What differs", &words.differs);
    part("What it needs", &words.needs);
    part("What to conclude, and what not", &words.conclude);
    let figures: Vec<String> = of_experiment(name, &[])
        .into_iter()
        .map(|figure| {
            let size = figure.request_size.map(|size| format!(", {size}")).unwrap_or_default();
            let value = of_unit(&figure.value, &figure.unit);
            format!("{}{size}: {value} (section {})", figure.what, figure.section)
        })
        .collect();
    part("What the papers say", &figures);
    text.push_str(&format!("\n{}\n", words.time));
    printer.data(&text);
    printer.say(&format!("next: `nearmetal experiment run {name} --help`; --dry-run prints the commands it would run"));
    Ok(ExitStatus::Done)
}
