//! Knobs of the kernel that tuning profiles turn, and the queues of block devices.

use nearmetal_units::CpuSet;
use serde::{Deserialize, Serialize};

/// Knobs of the whole machine. `None`: the source does not say, or this kernel has none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tuning {
    /// PUs that may run the kernel's unbound work (/sys/devices/virtual/workqueue/cpumask).
    pub workqueue_cpus: Option<CpuSet>,
    /// /proc/sys/vm/compaction_proactiveness: 0 is off, 20 the kernel's default, 100 the most.
    pub compaction_proactiveness: Option<u64>,
    /// /proc/sys/vm/hugetlb_optimize_vmemmap: whether new hugetlb pages give back what describes them.
    pub hugetlb_optimize_vmemmap: Option<bool>,
    /// Dirty page cache at which writers are held up.
    pub dirty: DirtyLimit,
    /// Dirty page cache at which the kernel starts to write.
    pub dirty_background: DirtyLimit,
    /// /proc/sys/net/core/busy_read: µs a read of a socket polls the card.
    pub busy_read: Option<u64>,
    /// /proc/sys/net/core/busy_poll: µs poll and select do.
    pub busy_poll: Option<u64>,
    /// The bracketed word of /sys/module/pcie_aspm/parameters/policy: how links of PCI Express save power.
    pub link_power_policy: Option<String>,
}

/// A limit of dirty page cache. The kernel keeps one of the two and prints the other as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DirtyLimit {
    /// Percent of the memory that can be given to it.
    pub ratio: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
}

/// The queue of a block device. Documentation/ABI/stable/sysfs-block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockQueue {
    /// Where requests complete: 0 on the PU that took the interrupt, 1 near the one that asked, 2 on that very one.
    pub rq_affinity: Option<u64>,
    /// Requests that are not merged: 0 none, 1 those that take a search, 2 all.
    pub nomerges: Option<u64>,
    /// `write back` or `write through`: whether the kernel sends flushes.
    pub write_cache: Option<String>,
    /// Whether the kernel can force one write to the medium: drivers say so only for a drive with a write cache.
    pub forced_unit_access: Option<bool>,
    /// `write back`, `write through`, …: what a SCSI or SATA drive itself says of its cache.
    pub drive_cache: Option<String>,
}

/// What the memory controller did to a QEMU process (control groups of version 2).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryGroup {
    /// The process.
    pub pid: u32,
    /// The group of the whole guest.
    pub path: String,
    /// Times it was made to give memory up at `memory.high`.
    pub high: Option<u64>,
    /// Times it ran into `memory.max`.
    pub max: Option<u64>,
    /// Times nothing could be given up.
    pub oom: Option<u64>,
    /// Bytes of it in swap.
    pub swap: Option<u64>,
}
