//! The VM's card.

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

/// What the VM is, whatever its placement.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GuestCard {
    /// Domain name.
    pub name: String,
    /// Domain UUID; no measurement records it.
    pub uuid: Option<String>,
    /// Virtual CPUs.
    pub vcpus: Option<u32>,
    /// Guest memory.
    pub memory: Option<Bytes>,
    /// Workload class, as the planner took it.
    pub class: Option<String>,
    /// Disks, in the domain's order.
    pub disks: Vec<DiskCard>,
}

/// One disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskCard {
    /// Target name in the guest, `vda`.
    pub target: String,
    /// Host path; `None` for an empty drive or a network disk.
    pub source: Option<String>,
    /// Size.
    pub size: Option<Bytes>,
    /// Driver options as found: "QEMU's default: writeback, threads".
    pub as_found: Option<String>,
    /// Driver options as planned: "cache=none io=io_uring iothread=1 queues=2".
    pub planned: Option<String>,
}
