//! Making a disk work for a moment, so that its engine shows: a short read in the guest, which changes nothing.

use std::time::{Duration, Instant};

use nearmetal_host::{DiskCounters, HostFs, disk_counters};
use nearmetal_hypervisor::{Hypervisor, agent};
use serde::{Deserialize, Serialize};

use super::GuestDisk;

/// Requests of a short read: enough to stand out from what a guest does by itself, and a second's work at most even
/// under emulation.
const REQUESTS: u64 = 512;
const REQUEST_BYTES: u64 = 4096;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Requests of the guest's own that are enough to tell.
const ENOUGH: u64 = 16;

/// What a disk did between two looks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Load {
    /// Read by the guest, at our request.
    Read {
        /// The guest's name of the disk.
        device: String,
        /// Requests.
        requests: u64,
        /// Bytes.
        bytes: u64,
    },
    /// The guest's own work, by the counters of the host's disk.
    Natural {
        /// Requests.
        requests: u64,
        /// Bytes.
        bytes: u64,
    },
    /// Nothing to judge by.
    None {
        /// Why, and what would help.
        why: String,
    },
}

/// Has the guest read from a disk, past its page cache.
pub(super) fn read_in_guest(hypervisor: &mut dyn Hypervisor, name: &str, disk: &GuestDisk) -> Result<Load, String> {
    let input = format!("if=/dev/{}", disk.name);
    let count = REQUESTS.min(disk.size.map_or(REQUESTS, |size| size.get() / REQUEST_BYTES));
    let (block, count_text) = (format!("bs={REQUEST_BYTES}"), format!("count={count}"));
    let direct = ["dd", &input, "of=/dev/null", &block, &count_text, "iflag=direct"];
    let output = agent::exec(hypervisor, name, &direct, None, LIMIT).map_err(|error| error.to_string())?;
    if output.status.is_success() && count > 0 {
        return Ok(Load::Read { device: disk.name.clone(), requests: count, bytes: count * REQUEST_BYTES });
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().chars().take(200).collect::<String>();
    Err(format!("a direct read of /dev/{} in the guest failed: {said}", disk.name))
}

/// Waits for the guest's own requests to a disk of the host.
pub(super) fn await_natural(files: &HostFs, device: &str, patience: Duration) -> Result<Load, String> {
    let look = || disk_counters(files, device).map_err(|error| error.to_string());
    let before = look()?;
    let started = Instant::now();
    loop {
        let (requests, bytes) = moved(&before, &look()?);
        if requests >= ENOUGH {
            return Ok(Load::Natural { requests, bytes });
        }
        if started.elapsed() >= patience {
            return Err(format!(
                "only {requests} of {ENOUGH} requests reached {device} in {} s: make the guest read from its disk \
                 meanwhile, or give it a guest agent",
                patience.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(100).min(patience));
    }
}

fn moved(before: &DiskCounters, after: &DiskCounters) -> (u64, u64) {
    let requests = |counters: &DiskCounters| counters.reads + counters.writes;
    let sectors = |counters: &DiskCounters| counters.sectors_read + counters.sectors_written;
    (requests(after).saturating_sub(requests(before)), sectors(after).saturating_sub(sectors(before)) * 512)
}
