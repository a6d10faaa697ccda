//! NUMA nodes and their hugepage pools.

use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};
use serde::{Deserialize, Serialize};

/// One NUMA node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NumaNode {
    /// Operating-system index; not contiguous on every machine.
    pub index: u32,
    /// Online PUs; empty for CPU-less memory.
    pub cpus: CpuSet,
    /// MemTotal of the node; zero for a memory-less node, `None` if the kernel does not say.
    pub memory_total: Option<Bytes>,
    /// MemFree of the node.
    pub memory_free: Option<Bytes>,
    /// Distance to each node, as (node index, SLIT distance); 10 is local.
    pub distances: Vec<(u32, u32)>,
    /// Hugepage pools, one per page size.
    pub pools: Vec<HugepagePool>,
    /// What the firmware says of reaching this memory (ACPI HMAT), by access class.
    #[serde(default)]
    pub access: Vec<MemoryAccess>,
    /// Caches in front of this memory, by level: DRAM before persistent memory, for one.
    #[serde(default)]
    pub side_caches: Vec<MemorySideCache>,
    /// Memory tier of the kernel, the fastest is the lowest; `None` without tiering.
    #[serde(default)]
    pub tier: Option<u32>,
}

/// How its nearest initiators reach a node's memory. Documentation/admin-guide/mm/numaperf.rst; the firmware's figures,
/// not measured ones. Zero in the kernel's file means that the firmware gave none, and is `None` here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryAccess {
    /// 0: from any initiator, 1: from processors.
    pub class: u32,
    /// Nodes of the nearest initiators.
    pub initiators: NodeSet,
    /// Nanoseconds for a read.
    pub read_latency: Option<u64>,
    /// Nanoseconds for a write.
    pub write_latency: Option<u64>,
    /// MB/s (10^6 bytes) of reads.
    pub read_bandwidth: Option<u64>,
    /// MB/s (10^6 bytes) of writes.
    pub write_bandwidth: Option<u64>,
}

/// A cache in front of a node's memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemorySideCache {
    /// 1 is nearest to the memory.
    pub level: u32,
    /// Its size.
    pub size: Option<Bytes>,
    /// Length of a line.
    pub line: Option<Bytes>,
    /// 0 direct-mapped, 1 any other way.
    pub indexing: Option<u64>,
    /// 0 write-back, 1 write-through.
    pub write_policy: Option<u64>,
}

/// A node's pool of one page size. Counts are pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugepagePool {
    /// Page size.
    pub size: PageSize,
    /// nr_hugepages: pages that exist, surplus included.
    pub total: u64,
    /// Free pages.
    pub free: u64,
    /// surplus_hugepages: pages that vanish when freed. A pool shrunk while in use turns its pages into surplus.
    pub surplus: u64,
}

impl HugepagePool {
    /// Pages that stay: total minus surplus. This is the figure a plan asks for and a read-back compares.
    pub fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }
}

impl NumaNode {
    /// SLIT distance to another node.
    pub fn distance(&self, other: u32) -> Option<u32> {
        self.distances.iter().find(|(node, _)| *node == other).map(|(_, distance)| *distance)
    }

    /// The pool of one page size.
    pub fn pool(&self, size: PageSize) -> Option<&HugepagePool> {
        self.pools.iter().find(|pool| pool.size == size)
    }
}
