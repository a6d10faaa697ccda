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

/// Say what is understood of a fleet file, or everything that is wrong with it
///
/// Reaches no host and changes nothing. Each mistake is shown with its line. Exit code 2 if there is one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The fleet file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How it is shown
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
            let things = if count == 1 { "1 thing is".to_owned() } else { format!("{count} things are") };
            printer.important(&format!("\nerror: {things} wrong with `{}`", path.display()));
            None
        }
    }
}
