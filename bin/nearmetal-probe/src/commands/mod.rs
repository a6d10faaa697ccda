//! One file and one function per command.

use std::ffi::OsString;
use std::process::ExitStatus;

use nearmetal_probe::error::ProbeError;

pub(crate) mod at;
pub(crate) mod bind;
pub(crate) mod capture;
pub(crate) mod count;
pub(crate) mod file_system;
pub(crate) mod gate;
pub(crate) mod kvm;
pub(crate) mod load;
pub(crate) mod memory_bandwidth;
pub(crate) mod memory_latency;
pub(crate) mod memory_work;
pub(crate) mod programs;
pub(crate) mod reach;
pub(crate) mod see;
pub(crate) mod see_binding;
pub(crate) mod serve;

/// An end that is no success is an error, and names the program.
fn ended(command: &[OsString], status: ExitStatus) -> Result<(), ProbeError> {
    if status.success() {
        return Ok(());
    }
    let program = command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    Err(ProbeError::Ended { program, status })
}
