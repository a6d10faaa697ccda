//! Thresholds: figures nobody measured once for all, with the value taken here and why.

use serde::{Deserialize, Serialize};

/// Thresholds of the rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Queues a disk or an interface needs at most.
    pub queues_enough: u32,
    /// From here on a guest's memory is large, in GiB.
    pub large_memory_gib: u64,
    /// Room a memory limit must leave above the guest's memory, in percent.
    pub hard_limit_margin_percent: u64,
    /// vCPUs per online PU, all running domains together.
    pub vcpus_per_pu: f64,
    /// Guest memory that must be on the nodes of its vCPUs, in percent.
    pub local_memory_percent: u64,
    /// Guest memory asked for in hugetlb pages that must be in such pages, in percent.
    pub hugetlb_coverage_percent: u64,
    /// Memory of a node that must stay outside hugepage pools, in MiB.
    pub node_reserve_mib: u64,
    /// Part of the kernel's limit a command line may fill, in percent.
    pub command_line_percent: u64,
    /// Longest useful polling of an iothread, in ns.
    pub polling_ns: u64,
    /// Longest way out of an idle state for guests of the latency class, in µs.
    pub idle_exit_us: u64,
    /// Time a vCPU with a PU of its own may be ready and wait for it, in percent of its life.
    pub wait_dedicated_percent: f64,
    /// The same for a vCPU that shares PUs.
    pub wait_percent: f64,
    /// Time a package may be slowed down by heat, in percent of the time since boot.
    pub throttled_percent: f64,
    /// Highest vm.swappiness where swap is on a disk.
    pub swappiness: u64,
    /// From here on a disk is worth a drive handed through, in requests each second.
    pub passthrough_iops: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queues_enough: 8,
            large_memory_gib: 64,
            hard_limit_margin_percent: 10,
            vcpus_per_pu: 5.0,
            local_memory_percent: 95,
            hugetlb_coverage_percent: 95,
            node_reserve_mib: 1024,
            command_line_percent: 90,
            polling_ns: 64_000,
            idle_exit_us: 3,
            wait_dedicated_percent: 1.0,
            wait_percent: 5.0,
            throttled_percent: 0.1,
            swappiness: 10,
            passthrough_iops: 200_000,
        }
    }
}

/// One threshold, for the reference.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name in [`Settings`].
    pub name: &'static str,
    /// Why the default is what it is.
    pub reason: &'static str,
}

/// All thresholds, in the order of [`Settings`].
pub const SETTINGS: [Setting; 15] = [
    Setting {
        name: "queues_enough",
        reason: "each queue costs vectors and memory; more than 8 rarely helps one device",
    },
    Setting { name: "large_memory_gib", reason: "chosen: where the page tables of 2 MiB pages outgrow the TLB" },
    Setting { name: "hard_limit_margin_percent", reason: "chosen: QEMU's own memory comes on top of the guest's" },
    Setting { name: "vcpus_per_pu", reason: "Red Hat's documentation names 5 vCPUs for each CPU as the most" },
    Setting { name: "local_memory_percent", reason: "chosen: NUMA misses start to show at about 10 % of accesses" },
    Setting {
        name: "hugetlb_coverage_percent",
        reason: "chosen: firmware and device memory are never in hugetlb pages",
    },
    Setting {
        name: "node_reserve_mib",
        reason: "chosen between Proxmox' 1 GB a host and libvirt's 6 GB for each 32 GB",
    },
    Setting { name: "command_line_percent", reason: "chosen: what follows the limit is cut off without a word" },
    Setting { name: "polling_ns", reason: "the patches that added polling measured 16000 to 64000 ns on NVMe" },
    Setting { name: "idle_exit_us", reason: "tuned's latency-performance and network-latency cap the exit at 3 µs" },
    Setting { name: "wait_dedicated_percent", reason: "chosen: a PU of its own leaves nothing to wait for" },
    Setting { name: "wait_percent", reason: "chosen: more than the scheduler's own turns on a host with room" },
    Setting { name: "throttled_percent", reason: "chosen: what a start from cold does, and no more" },
    Setting { name: "swappiness", reason: "tuned's throughput-performance and virtual-host set 10" },
    Setting { name: "passthrough_iops", reason: "chosen: about what one iothread does at best" },
];
