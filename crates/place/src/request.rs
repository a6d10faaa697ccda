//! What the planner is asked: the facts of each guest, without any XML.

use nearmetal_units::{Bytes, PciAddress};
use serde::{Deserialize, Serialize};

/// What a guest is for; decides which trade-offs are right for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadClass {
    /// Nothing special is known.
    #[default]
    General,
    /// Many guests on few cores: floating beats pinning.
    Density,
    /// Work done per second counts.
    Throughput,
    /// The slowest answer counts.
    Latency,
    /// A Windows guest.
    Windows,
    /// Devices are handed through.
    Passthrough,
}

/// One guest to place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestRequest {
    /// Domain name.
    pub name: String,
    /// Domain UUID.
    pub uuid: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: Bytes,
    /// Workload class.
    pub class: WorkloadClass,
    /// Disks, in the domain's order.
    pub disks: Vec<DiskRequest>,
    /// Network interfaces, in the domain's order.
    pub networks: Vec<NetworkRequest>,
    /// PCI functions handed through.
    pub passthrough: Vec<PciAddress>,
}

/// A disk of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskRequest {
    /// Target name in the guest, `vda`.
    pub target: String,
    /// Host path of its source (`/dev/nvme0n1`, `/var/lib/…/x.qcow2`); `None` for empty drives and network disks.
    pub source: Option<String>,
    /// Host block device that holds the source, where it is one or lies on one (`nvme0n1`).
    pub block_device: Option<String>,
    /// Whether it is a whole block device or partition rather than a file.
    pub is_block: bool,
    /// Whether the guest drives it by virtio-blk: only then do iothread and queues apply.
    pub is_virtio_blk: bool,
    /// Whether it is a CD-ROM, floppy or read-only disk: left as it is.
    pub is_read_only: bool,
}

/// A network interface of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRequest {
    /// MAC address: names the interface.
    pub mac: String,
    /// Host interface it hangs on, if known.
    pub host_interface: Option<String>,
    /// Whether vhost-net carries it (a tap, bridge or network interface with the virtio model).
    pub uses_vhost: bool,
}
