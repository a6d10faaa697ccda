//! `nearmetal-probe file-system` and `file-systems`

use nearmetal_host::HostFs;
use nearmetal_probe::error::ProbeError;
use nearmetal_probe::file_system::{FileSystems, run_in};
use nearmetal_probe::output::Output;

use crate::cli::FileSystemArguments;

/// Makes, mounts, runs; ends with the command's exit code.
pub(crate) fn run(arguments: &FileSystemArguments) -> Result<(), ProbeError> {
    match run_in(arguments.kind(), &arguments.device, &arguments.command)? {
        0 => Ok(()),
        code => Err(ProbeError::Program {
            program: arguments.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default(),
            why: format!("it ended with {code}"),
        }),
    }
}

/// Prints the kinds this machine can make and mount.
pub(crate) fn list() -> Result<(), ProbeError> {
    Output::new("file-systems", &FileSystems::look(&HostFs::live())?).print()
}
