//! Reading a fleet file.

use std::path::Path;

use nearmetal_fleet::file::FleetFile;
use nearmetal_host::files;

use crate::printer::Printer;

/// Bytes read of a fleet file; the parser's own limit is told by the parser.
const MOST_READ: usize = (16 << 20) + 1;

/// The fleet file at a path; `None`: what is wrong was said.
pub(crate) fn read_file(path: &Path, printer: &mut Printer) -> Option<FleetFile> {
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
