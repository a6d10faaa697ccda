//! `nearmetal-probe bind`

use std::os::unix::process::CommandExt;
use std::process::Command;

use nearmetal_probe::binding::Request;
use nearmetal_probe::error::ProbeError;

use crate::cli::BindArguments;

/// Binds, verifies, and becomes the command; returns only if that failed.
pub(crate) fn run(arguments: BindArguments) -> Result<(), ProbeError> {
    Request::from(arguments.place).apply()?;
    let Some((program, rest)) = arguments.command.split_first() else { return Ok(()) };
    let source = Command::new(program).args(rest).exec();
    Err(ProbeError::Start { program: program.to_string_lossy().into_owned(), source })
}
