//! What a host is: plain data, complete enough to decide where a guest belongs.
//!
//! Facts the source did not give are `None`; facts it gave in a form that cannot be read are listed in
//! [`Host::unreadable`]. Neither is ever a zero.

mod devices;
mod guests;
mod memory;
mod processors;

pub use devices::{BlockDevice, NetworkInterface, PciDevice, SriovState};
pub use guests::{GuestProcess, Residency, Thread, ThreadRole};
pub use memory::{HugepagePool, NumaNode};
pub use processors::{Cache, CacheKind, Core, CoreKind, CpuGroup, Processor};

use serde::{Deserialize, Serialize};

use nearmetal_units::{CpuSet, NodeSet};

/// One machine, as its kernel shows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Host {
    /// Where the facts come from: `live`, or the path of a capture.
    pub source: String,
    /// Kernel, name and boot.
    pub system: System,
    /// One entry per PU the kernel lists, online or not, by rising index.
    pub processors: Vec<Processor>,
    /// One entry per core, by package and core number.
    pub cores: Vec<Core>,
    /// Packages (sockets) by first PU, as sets of PUs: their numbers are not always there, nor unique.
    #[serde(default)]
    pub packages: Vec<CpuGroup>,
    /// Dies by first PU; empty where the kernel knows of none.
    #[serde(default)]
    pub dies: Vec<CpuGroup>,
    /// Clusters of cores by first PU; empty where the kernel knows of none, or of none larger than a core.
    #[serde(default)]
    pub clusters: Vec<CpuGroup>,
    /// Books (s390) by first PU.
    #[serde(default)]
    pub books: Vec<CpuGroup>,
    /// Drawers of books (s390) by first PU.
    #[serde(default)]
    pub drawers: Vec<CpuGroup>,
    /// Caches of processors, by level, kind and first PU.
    #[serde(default)]
    pub caches: Vec<Cache>,
    /// NUMA nodes by rising index, memory-less and CPU-less ones included.
    pub nodes: Vec<NumaNode>,
    /// PCI functions by address.
    pub pci_devices: Vec<PciDevice>,
    /// Whole block devices and partitions by name.
    pub block_devices: Vec<BlockDevice>,
    /// Network interfaces by name.
    pub network_interfaces: Vec<NetworkInterface>,
    /// QEMU processes found in /proc, by pid.
    pub guests: Vec<GuestProcess>,
    /// What was there but could not be understood.
    pub unreadable: Vec<Unreadable>,
    /// Paths that exist and may not be read by this user: what root would add.
    #[serde(default)]
    pub denied: Vec<String>,
}

/// Kernel, name and boot of a host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct System {
    /// The host's name.
    pub hostname: Option<String>,
    /// `uname -r`.
    pub kernel: Option<String>,
    /// Changes at every boot: tells whether volatile changes can still be in force.
    pub boot_id: Option<String>,
    /// The kernel command line.
    pub command_line: Option<String>,
    /// Model name of the first processor.
    pub processor_model: Option<String>,
    /// Whether the kernel says it runs under a hypervisor (the `hypervisor` CPU flag).
    pub hypervisor: Option<bool>,
    /// /proc/sys/kernel/numa_balancing.
    pub numa_balancing: Option<u64>,
    /// /proc/sys/kernel/io_uring_disabled: 0 all may use it, 1 only its group, 2 nobody.
    pub io_uring_disabled: Option<u64>,
    /// The bracketed word of /sys/kernel/mm/transparent_hugepage/enabled.
    pub transparent_hugepage: Option<String>,
}

/// A kernel file that was there and made no sense.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Path inside the source.
    pub path: String,
    /// Its text, cut to 200 characters.
    pub raw: String,
    /// Why it was not understood.
    pub reason: String,
}

impl Host {
    /// PUs that are online.
    pub fn online(&self) -> CpuSet {
        self.processors.iter().filter(|processor| processor.online).map(|processor| processor.index).collect()
    }

    /// The node with this index.
    pub fn node(&self, index: u32) -> Option<&NumaNode> {
        self.nodes.iter().find(|node| node.index == index)
    }

    /// The node whose CPUs contain this PU.
    pub fn node_of_cpu(&self, cpu: u32) -> Option<&NumaNode> {
        self.nodes.iter().find(|node| node.cpus.contains(cpu))
    }

    /// The PU with this index.
    pub fn processor(&self, index: u32) -> Option<&Processor> {
        self.processors.iter().find(|processor| processor.index == index)
    }

    /// All node indices.
    pub fn node_set(&self) -> NodeSet {
        self.nodes.iter().map(|node| node.index).collect()
    }

    /// The block device with this kernel name (`nvme0n1`).
    pub fn block_device(&self, name: &str) -> Option<&BlockDevice> {
        self.block_devices.iter().find(|device| device.name == name)
    }
}
