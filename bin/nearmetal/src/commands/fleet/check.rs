//! `nearmetal fleet check`.

use std::path::{Path, PathBuf};

use nearmetal_fleet::file::{FleetFile, summary};
use nearmetal_host::files;
use serde::Serialize;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::style::Format;

/// Bytes read of a fleet file; the parser's own limit is told by the parser.
const MOST_READ: usize = (16 << 20) + 1;

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
    let Some(file) = read(&args.file, printer) else { return Ok(ExitStatus::WrongUse) };
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

/// The fleet file at a path; `None`: what is wrong was said.
pub(crate) fn read(path: &Path, printer: &mut Printer) -> Option<FleetFile> {
    let text = match files::read_to_string_up_to(path, MOST_READ) {
        Ok(text) => text,
        Err(error) => {
            printer.important(&format!("error: {:#}", anyhow::Error::from(error)));
            return None;
        }
    };
    match FleetFile::parse(&path.display().to_string(), &text) {
        Ok(file) => Some(file),
        Err(errors) => {
            let count = errors.problems.len();
            printer.important(&errors.to_string());
            let mistakes = if count == 1 { "1 mistake".to_owned() } else { format!("{count} mistakes") };
            printer.important(&format!("\nerror: `{}` has {mistakes}", path.display()));
            None
        }
    }
}
