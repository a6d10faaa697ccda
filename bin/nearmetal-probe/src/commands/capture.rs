//! `nearmetal-probe capture`

use nearmetal_host::HostFs;
use nearmetal_probe::error::ProbeError;

use crate::cli::CaptureArguments;

/// Writes a capture of this machine to standard output.
pub(crate) fn run(arguments: CaptureArguments) -> Result<(), ProbeError> {
    let (tree, _) = nearmetal_capture::collect(HostFs::live(), arguments.unmasked)?;
    Ok(nearmetal_capture::write(&tree, arguments.unmasked, std::io::stdout().lock())?)
}
