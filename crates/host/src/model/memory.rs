//! NUMA nodes and their hugepage pools.

use nearmetal_units::{Bytes, CpuSet, PageSize};
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
