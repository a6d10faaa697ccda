//! What a host is: plain data, complete enough to decide where a guest belongs.
//!
//! Facts the source did not give are `None`; facts it gave in a form that cannot be read are listed in
//! [`Host::unreadable`]. Neither is ever a zero.

mod devices;
mod guests;
mod interrupts;
mod memory;
mod open_vswitch;
mod processors;
mod settings;
mod storage;
mod system;
mod tuning;

pub use devices::{
    AccessControl, BlockDevice, NetworkInterface, Offload, PciBar, PciDevice, PciLink, SriovState, VirtualFunction,
};
pub use guests::{CpuQuota, CpuTimeGroup, GuestProcess, Residency, Scheduling, SchedulingPolicy, Thread, ThreadRole};
pub use interrupts::{Cpuset, Interrupt};
pub use memory::{HugepagePool, MemoryAccess, MemorySideCache, NumaNode};
pub use open_vswitch::{DpdkPort, OpenVswitch};
pub use processors::{Cache, CacheKind, Core, CoreKind, CpuGroup, Processor};
pub use settings::{Boost, IdleState, IdleStates, ProcessorTime, SwapArea, Sysctl, Throttling, TunedProfile};
pub use storage::{ImageFile, Mount};
pub use system::{FrequencyPolicy, HugepageTotal, Setting, System};
pub use tuning::{BlockQueue, DirtyLimit, MemoryGroup, Tuning};

use serde::{Deserialize, Serialize};

use nearmetal_units::{Bytes, CpuSet, NodeSet};

/// One machine, as its kernel shows it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Host {
    /// Where the facts come from: `live`, or the path of a capture.
    pub source: String,
    /// Kernel, name and boot.
    pub system: System,
    /// Knobs that tuning profiles turn.
    #[serde(default)]
    pub tuning: Tuning,
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
    /// Kinds of cores; empty where all are alike, as far as the kernel says.
    #[serde(default)]
    pub core_kinds: Vec<CoreKind>,
    /// NUMA nodes by rising index, memory-less and CPU-less ones included.
    pub nodes: Vec<NumaNode>,
    /// PCI functions by address.
    pub pci_devices: Vec<PciDevice>,
    /// Whole block devices and partitions by name.
    pub block_devices: Vec<BlockDevice>,
    /// Network interfaces by name.
    pub network_interfaces: Vec<NetworkInterface>,
    /// Interrupts by number.
    #[serde(default)]
    pub interrupts: Vec<Interrupt>,
    /// Control groups that limit PUs or nodes, by path.
    #[serde(default)]
    pub cpusets: Vec<Cpuset>,
    /// File systems that are mounted, in the order they were; `None` where the source does not say.
    #[serde(default)]
    pub mounts: Option<Vec<Mount>>,
    /// Disks of guests that are files; empty where nobody asked for them.
    #[serde(default)]
    pub images: Vec<ImageFile>,
    /// Open vSwitch; `None` where it was not asked or is not there.
    #[serde(default)]
    pub open_vswitch: Option<OpenVswitch>,
    /// QEMU processes found in /proc, by pid.
    pub guests: Vec<GuestProcess>,
    /// What limits of memory did to those processes, by pid.
    #[serde(default)]
    pub memory_groups: Vec<MemoryGroup>,
    /// What was there but could not be understood.
    pub unreadable: Vec<Unreadable>,
    /// Paths that exist and may not be read by this user: what root would add.
    #[serde(default)]
    pub denied: Vec<String>,
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

    /// PUs kept from ordinary work: those of `isolcpus=` and of isolated partitions.
    pub fn isolated_cpus(&self) -> CpuSet {
        let partitions = self.cpusets.iter().filter(|set| set.is_isolated());
        let partitions = partitions.filter_map(|set| set.effective_cpus.as_ref());
        partitions.chain(&self.system.isolated).fold(CpuSet::new(), |all, cpus| all.union(cpus))
    }

    /// What the nodes have together, where each says it.
    pub fn memory_of_nodes(&self) -> Option<Bytes> {
        let each = self.nodes.iter().map(|node| node.memory_total).collect::<Option<Vec<Bytes>>>()?;
        (!each.is_empty()).then(|| each.into_iter().fold(Bytes::ZERO, Bytes::plus))
    }

    /// What a new guest or a growing pool can have of a node: [`NumaNode::memory_available`], and no more than the
    /// node's share of the machine's memory where the nodes say they have more than the machine.
    pub fn memory_available(&self, node: &NumaNode) -> Option<Bytes> {
        let available = node.memory_available()?;
        let share = match (node.memory_total, self.memory_of_nodes(), self.system.memory_total) {
            (Some(own), Some(nodes), Some(machine)) if machine < nodes => {
                // Below the node's own figure, since the quotient is below 1.
                let share = u128::from(own.get()) * u128::from(machine.get()) / u128::from(nodes.get());
                Bytes::new(u64::try_from(share).unwrap_or(u64::MAX))
            }
            _ => return Some(available),
        };
        Some(available.min(share))
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

    /// The file system a path is on, as far as mount points tell: links on its way are not followed.
    pub fn mount_of(&self, path: &str) -> Option<&Mount> {
        storage::mount_of(self.mounts.as_deref()?, path)
    }

    /// What was found out about the image with this path in a definition.
    pub fn image(&self, path: &str) -> Option<&ImageFile> {
        self.images.iter().find(|image| image.path == path)
    }

    /// Whether this image was seen not to open past the page cache: with cache='none' its guest does not start.
    pub fn refuses_direct(&self, path: &str) -> bool {
        self.image(path).is_some_and(|image| image.direct == Some(false))
    }

    /// The block device with this kernel name (`nvme0n1`).
    pub fn block_device(&self, name: &str) -> Option<&BlockDevice> {
        self.block_devices.iter().find(|device| device.name == name)
    }
}
