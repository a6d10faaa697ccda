//! `nearmetal fleet check`.

use std::path::PathBuf;

use nearmetal_fleet::file::{FleetFile, summary};
use serde::Serialize;

use crate::exit_status::ExitStatus;
use crate::fleet::file::read_file;
use crate::printer::Printer;
use crate::style::Format;

/// Check a fleet file: print what nearmetal understands, or every mistake in it
///
/// Contacts no host and changes nothing. Each mistake comes with its line; the exit code is then 2.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// The file as a document for programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    file: &'a FleetFile,
}

/// Runs the command.
pub(crate) fn check(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let Some(file) = read_file(&args.file, printer) else { return Ok(ExitStatus::WrongUse) };
    match args.format {
        Format::Text => printer.data(&summary(&file)),
        Format::Json => {
            let document = Document { schema: "nearmetal.fleet-file/1", file: &file };
            printer.data(&serde_json::to_string_pretty(&document)?);
        }
    }
    printer.say(&format!("to plan it: nearmetal plan --fleet {}", args.file.display()));
    Ok(ExitStatus::Done)
}
