//! What the processors of a lab count while a command runs.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Instant;

use nearmetal_counters::Reading;
use nearmetal_host::{HostFs, LabCountersError};
use serde::Serialize;

use crate::error::ProbeError;

/// Readings that are timed.
const READINGS: usize = 21;

/// Counts of all PUs and of all guests' vCPUs.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// How long one reading of all counters took, ns of this machine's clock.
    pub reading_nanoseconds: u64,
    /// What was counted.
    #[serde(flatten)]
    pub reading: Reading,
}

/// Counts while a command runs; without one, since the machine was switched on. What the command prints goes to standard
/// error, since the counts go to standard output. `memory`: accesses to memory are counted meanwhile, in a lab that has to be
/// asked for that.
///
/// # Errors
/// This machine is no lab that counts, or the command fails.
pub fn count(fs: &HostFs, memory: bool, command: &[OsString]) -> Result<Counted, ProbeError> {
    let _watch = if memory { fs.watch_lab_memory().ok_or(ProbeError::NotCounting)?? } else { None };
    let reading_nanoseconds = duration_of_a_reading(fs)?;
    let counted = |reading| Counted { reading_nanoseconds, reading };
    let before = read(fs)?;
    let Some((program, arguments)) = command.split_first() else { return Ok(counted(before)) };
    let name = || program.to_string_lossy().into_owned();
    let words = std::io::stderr().as_fd().try_clone_to_owned().map_err(ProbeError::Output)?;
    let mut process = Command::new(program);
    process.args(arguments).stdout(Stdio::from(words));
    let status = process.status().map_err(|source| ProbeError::Start { program: name(), source })?;
    let after = read(fs)?;
    if !status.success() {
        return Err(ProbeError::Ended { program: name(), status });
    }
    Ok(counted(after.since(&before)))
}

/// The median of some, in ns. The first maps the page.
fn duration_of_a_reading(fs: &HostFs) -> Result<u64, ProbeError> {
    let mut all = Vec::new();
    for _ in 0..READINGS {
        let clock = Instant::now();
        read(fs)?;
        all.push(u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    all.sort_unstable();
    Ok(all[READINGS / 2])
}

pub(crate) fn read(fs: &HostFs) -> Result<Reading, ProbeError> {
    Ok(fs.lab_counters().ok_or(ProbeError::NotCounting)??)
}

impl From<LabCountersError> for ProbeError {
    fn from(error: LabCountersError) -> Self {
        Self::Counters(error)
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_host::MemoryTree;

    use super::*;

    #[test]
    fn a_machine_that_does_not_count_says_what_does() {
        let fs = HostFs::of_tree(MemoryTree::new(), "a fixture");
        let error = count(&fs, false, &[]).unwrap_err();
        assert!(error.to_string().contains("nearmetal lab up --count"), "{error}");
        assert_eq!(error.exit_code(), 3);
    }
}
