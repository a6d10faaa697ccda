//! `nearmetal lab status`.

use std::fmt::Write;

use nearmetal_lab::machine::Count;
use nearmetal_lab::{LabName, LabState, LabStatus, Places};
use nearmetal_units::Bytes;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// List labs: up, booting, dead, or only their kept disks
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show only this lab; the exit code is 1 unless it is up
    name: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// A table for people
    Text,
    /// One document for programs
    Json,
}

#[derive(serde::Serialize)]
struct Document {
    schema: &'static str,
    labs: Vec<LabStatus>,
}

/// Lists labs.
pub fn status(args: Args, places: &Places, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let mut labs = nearmetal_lab::status(places)?;
    let mut status = ExitStatus::Done;
    if let Some(name) = args.name {
        let name: LabName = name.parse()?;
        labs.retain(|lab| lab.name == name);
        if !labs.iter().any(|lab| lab.state == LabState::Up) {
            status = ExitStatus::Findings;
        }
    }
    match args.format {
        Format::Json => {
            let document = Document { schema: "nearmetal.lab-status/1", labs };
            printer.data(&serde_json::to_string_pretty(&document)?);
        }
        Format::Text if labs.is_empty() => printer.say("no labs"),
        Format::Text => printer.data(&table(&labs)),
    }
    Ok(status)
}

fn table(labs: &[LabStatus]) -> String {
    let mut text = format!(
        "{:<24} {:<8} {:<16} {:<9} {:>8} {:>6} {:>6} {:>12}\n",
        "LAB", "STATE", "MACHINE", "COUNTS", "PID", "PORT", "DISKS", "SIZE"
    );
    for lab in labs {
        let state = match lab.state {
            LabState::Booting => "booting",
            LabState::Up => "up",
            LabState::Dead => "dead",
            LabState::Kept => "kept",
        };
        let number = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        let _ = writeln!(
            text,
            "{:<24} {:<8} {:<16} {:<9} {:>8} {:>6} {:>6} {:>12}",
            lab.name,
            state,
            lab.machine.as_deref().unwrap_or("-"),
            lab.count.map_or("-", Count::id),
            number(lab.pid),
            number(lab.ssh_port.map(u32::from)),
            if lab.keep { "keep" } else { "drop" },
            Bytes::new(lab.disk_bytes),
        );
    }
    text
}
