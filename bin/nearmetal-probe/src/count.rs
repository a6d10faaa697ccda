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
    /// `true`: accesses to memory were counted too.
    pub locality: bool,
    /// Size of each PU's modelled cache in bytes, where accesses were counted.
    pub cache_bytes: Option<u64>,
    /// How long one reading of all counters took, ns of this machine's clock.
    pub reading_nanoseconds: u64,
    /// By PU.
    pub pus: Vec<OfPu>,
    /// By guest's vCPU that ran.
    pub guests: Vec<OfGuest>,
}

/// Counts of a PU.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OfPu {
    /// Its number.
    pub pu: usize,
    /// Instructions, those of guests included.
    pub instructions: u64,
    /// Instructions of guests.
    pub in_guest: u64,
    /// Entries into guests.
    pub world_switches: u64,
    /// By node; missing where accesses were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Vec<OfNode>>,
}

/// Accesses of a PU to a node's memory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OfNode {
    /// The node.
    pub node: usize,
    /// By programs on the host.
    pub user: u64,
    /// By its kernel.
    pub kernel: u64,
    /// By guests.
    pub guest: u64,
    /// Of all these, what the modelled cache would have missed.
    pub misses: u64,
}

/// Counts of a guest's vCPU.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct OfGuest {
    /// Physical address of its control block (VMCB), as hexadecimal digits.
    pub vmcb: String,
    /// Its instructions.
    pub instructions: u64,
    /// Times it was entered.
    pub world_switches: u64,
}

impl Counted {
    /// A reading, and how long it took.
    fn new(reading: Reading, reading_nanoseconds: u64) -> Self {
        let locality = reading.cache_bytes.is_some();
        let of_pu = |(pu, counts): (usize, nearmetal_counters::PuCounts)| OfPu {
            pu,
            instructions: counts.instructions,
            in_guest: counts.in_guest,
            world_switches: counts.world_switches,
            memory: counts.memory.map(|nodes| {
                let of_node = |(node, counts): (usize, nearmetal_counters::MemoryCounts)| OfNode {
                    node,
                    user: counts.user,
                    kernel: counts.kernel,
                    guest: counts.guest,
                    misses: counts.misses,
                };
                nodes.into_iter().enumerate().map(of_node).collect()
            }),
        };
        let of_guest = |counts: nearmetal_counters::GuestCounts| OfGuest {
            vmcb: format!("{:x}", counts.vmcb),
            instructions: counts.instructions,
            world_switches: counts.world_switches,
        };
        Self {
            locality,
            cache_bytes: reading.cache_bytes,
            reading_nanoseconds,
            pus: reading.pus.into_iter().enumerate().map(of_pu).collect(),
            guests: reading.guests.into_iter().map(of_guest).collect(),
        }
    }
}

/// Counts while a command runs; without one, since the machine was switched on. What the command prints goes to standard
/// error, since the counts go to standard output.
///
/// # Errors
/// This machine is no lab that counts, or the command fails.
pub fn count(fs: &HostFs, command: &[OsString]) -> Result<Counted, ProbeError> {
    let took = duration_of_a_reading(fs)?;
    let before = read(fs)?;
    let Some((program, arguments)) = command.split_first() else { return Ok(Counted::new(before, took)) };
    let name = || program.to_string_lossy().into_owned();
    let words = std::io::stderr().as_fd().try_clone_to_owned().map_err(ProbeError::Output)?;
    let mut process = Command::new(program);
    process.args(arguments).stdout(Stdio::from(words));
    let status = process.status().map_err(|source| ProbeError::Start { program: name(), source })?;
    let after = read(fs)?;
    if !status.success() {
        return Err(ProbeError::Ended { program: name(), status });
    }
    Ok(Counted::new(after.since(&before), took))
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
        let error = count(&fs, &[]).unwrap_err();
        assert!(error.to_string().contains("nearmetal lab up --count"), "{error}");
        assert_eq!(error.exit_code(), 3);
    }
}
