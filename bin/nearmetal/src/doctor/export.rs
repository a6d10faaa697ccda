//! `nearmetal doctor export`: what is given to the export, and where it goes.

use std::path::Path;

use nearmetal_export::Input;
use nearmetal_host::HostFs;
use nearmetal_rules::Examination;

use super::Gathered;
use crate::export_directory;

/// Writes an export; what an earlier one left in the directory goes. Gives the paths written, one a line.
///
/// # Errors
/// There is something in the directory that is not from an export, or it cannot be written; with what to do.
pub(crate) fn export(
    directory: &Path,
    gathered: &Gathered,
    examination: &Examination,
    is_live: bool,
) -> Result<String, String> {
    let kernel = HostFs::live();
    let input = Input {
        host: &gathered.host,
        findings: &examination.findings,
        cannot_tell: &examination.cannot_tell,
        definitions: &gathered.definitions,
        // What a capture lacks may be on the machine.
        is_missing: &|path| is_live && !kernel.exists(path),
    };
    export_directory::write(directory, &nearmetal_export::export(&input))
}
