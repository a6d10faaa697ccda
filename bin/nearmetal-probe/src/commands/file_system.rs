//! `nearmetal-probe file-system` and `file-systems`

use nearmetal_host::HostFs;
use nearmetal_probe::error::ProbeError;
use nearmetal_probe::file_system::{FileSystems, run_in};
use nearmetal_probe::output::Output;

use super::ended;
use crate::cli::FileSystemArguments;

/// Makes, mounts, runs; an end that is no success is an error.
pub(crate) fn run(arguments: &FileSystemArguments) -> Result<(), ProbeError> {
    ended(&arguments.command, run_in(arguments.kind(), &arguments.device, &arguments.command)?)
}

/// Prints the kinds this machine can make and mount.
pub(crate) fn list() -> Result<(), ProbeError> {
    Output::new("file-systems", &FileSystems::look(&HostFs::live())?).print()
}
