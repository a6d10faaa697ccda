//! Running QEMU processes as the kernel shows them: threads and pages, no configuration.

use std::fmt;

use nearmetal_units::{Bytes, CpuSet, PageSize};
use serde::{Deserialize, Serialize};

/// One QEMU process.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GuestProcess {
    /// Process id.
    pub pid: u32,
    /// Clock ticks between boot and its start (/proc/PID/stat field 22): with the pid it names this process for good,
    /// a pid alone may be given to another one.
    #[serde(default)]
    pub start_time: Option<u64>,
    /// Domain name (`-name guest=…`).
    pub name: Option<String>,
    /// Domain UUID (`-uuid …`).
    pub uuid: Option<String>,
    /// Guest memory asked for on its command line (`-m`, or the sum of its memory backends).
    #[serde(default)]
    pub memory: Option<Bytes>,
    /// Its threads, and the kernel threads that work for it (vhost before Linux 6.4), by thread id.
    pub threads: Vec<Thread>,
    /// Where its pages are.
    pub residency: Vec<Residency>,
    /// Why `residency` could not be read; an empty `residency` without this means no page is there yet.
    #[serde(default)]
    pub residency_error: Option<String>,
    /// Its memory that is in swap (VmSwap); pages in hugetlb pools and shared ones are never counted there.
    #[serde(default)]
    pub swapped: Option<Bytes>,
    /// How long each vCPU's thread was ready and had no PU since it began, as (vCPU, ns).
    #[serde(default)]
    pub vcpu_waits: Vec<(u32, u64)>,
    /// Control groups that deal out processor time to its threads: those its threads are in and all above them, by path.
    /// Groups without the CPU controller are left out.
    #[serde(default)]
    pub time_groups: Vec<CpuTimeGroup>,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Thread id.
    pub id: u32,
    /// Its name (comm).
    pub name: String,
    /// What it does.
    pub role: ThreadRole,
    /// Allowed PUs (Cpus_allowed_list).
    pub affinity: Option<CpuSet>,
    /// How the kernel's scheduler treats it.
    #[serde(default)]
    pub scheduling: Option<Scheduling>,
}

/// How the kernel's scheduler treats a thread: sched(7), fields 19, 40 and 41 of /proc/PID/task/TID/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// Its policy.
    pub policy: SchedulingPolicy,
    /// Static priority: 1 to 99 for `fifo` and `rr`, 0 for all others.
    pub priority: u32,
    /// -20 (most) to 19 (least); means something for `other` and `batch` alone.
    pub nice: i32,
}

impl Scheduling {
    /// What a thread has where nobody asked for anything else.
    pub const DEFAULT: Self = Self { policy: SchedulingPolicy::Other, priority: 0, nice: 0 };
}

impl fmt::Display for Scheduling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            SchedulingPolicy::Fifo | SchedulingPolicy::RoundRobin => {
                write!(formatter, "{} priority {}", self.policy, self.priority)
            }
            SchedulingPolicy::Other | SchedulingPolicy::Batch => {
                write!(formatter, "{} nice {}", self.policy, self.nice)
            }
            _ => self.policy.fmt(formatter),
        }
    }
}

/// A scheduling policy, by the kernel's number (include/uapi/linux/sched.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulingPolicy {
    /// SCHED_OTHER, the kernel's own name for it SCHED_NORMAL.
    Other,
    /// SCHED_FIFO: real-time, runs until it waits.
    Fifo,
    /// SCHED_RR: real-time, in turns with others of its priority.
    RoundRobin,
    /// SCHED_BATCH.
    Batch,
    /// SCHED_IDLE: runs where nothing else wants to.
    Idle,
    /// SCHED_DEADLINE.
    Deadline,
    /// SCHED_EXT: a scheduler loaded as BPF.
    Extensible,
    /// A policy this version does not know.
    Unknown(u32),
}

impl SchedulingPolicy {
    /// The policy of a number.
    pub fn of(number: u32) -> Self {
        match number {
            0 => Self::Other,
            1 => Self::Fifo,
            2 => Self::RoundRobin,
            3 => Self::Batch,
            5 => Self::Idle,
            6 => Self::Deadline,
            7 => Self::Extensible,
            other => Self::Unknown(other),
        }
    }
}

impl fmt::Display for SchedulingPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Other => "SCHED_OTHER",
            Self::Fifo => "SCHED_FIFO",
            Self::RoundRobin => "SCHED_RR",
            Self::Batch => "SCHED_BATCH",
            Self::Idle => "SCHED_IDLE",
            Self::Deadline => "SCHED_DEADLINE",
            Self::Extensible => "SCHED_EXT",
            Self::Unknown(number) => return write!(formatter, "policy {number}"),
        })
    }
}

/// A control group that deals out processor time. Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimeGroup {
    /// Its path below the mount point.
    pub path: String,
    /// Version of control groups: 1 or 2.
    pub version: u32,
    /// Thread ids of the guest's threads that are in it, not in one below.
    pub threads: Vec<u32>,
    /// `cpu.weight` (version 2, 100 by default) or `cpu.shares` (version 1, 1024 by default).
    pub weight: Option<u64>,
    /// Its bandwidth limit.
    pub quota: Option<CpuQuota>,
}

/// How much processor time a control group may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuQuota {
    /// No limit.
    Unlimited,
    /// So much of each period.
    Limited {
        /// Processor time, in µs.
        quota: u64,
        /// Length of a period, in µs.
        period: u64,
    },
}

impl fmt::Display for CpuQuota {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => formatter.write_str("no quota"),
            Self::Limited { quota, period } => write!(formatter, "{quota} of each {period} µs"),
        }
    }
}

/// What a thread of QEMU does, by its name (libvirt starts QEMU with debug-threads=on).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadRole {
    /// `CPU n/KVM` or `CPU n/TCG`.
    Vcpu(u32),
    /// The main loop: thread id equals process id.
    Emulator,
    /// `IO iothreadN`: libvirt's iothread N.
    Iothread(u32),
    /// `vhost-PID`: inside QEMU since Linux 6.4, a kernel thread before.
    Vhost,
    /// Thread-pool worker of the block layer (`worker`).
    Worker,
    /// Any other helper thread (monitor iothread, SPICE, RCU, …); placed with the emulator thread by libvirt.
    Other,
}

/// One mapping of the process and where its pages are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residency {
    /// Start address of the mapping.
    pub start: u64,
    /// Page size that backs it, per numa_maps' kernelpagesize_kB.
    pub page_size: PageSize,
    /// Length of the mapping.
    pub length: Bytes,
    /// Whether it is guest memory: the mapping is as large as the guest's RAM (or a memory cell of it).
    pub guest_memory: bool,
    /// Pages (of `page_size`) per node, as (node, pages).
    pub pages: Vec<(u32, u64)>,
    /// Memory policy as the kernel prints it: `default`, `bind:1`, ….
    pub policy: String,
    /// File behind it, if any.
    pub file: Option<String>,
}

impl GuestProcess {
    /// Threads of one role, by thread id.
    pub fn threads_of(&self, role: &ThreadRole) -> impl Iterator<Item = &Thread> {
        self.threads.iter().filter(move |thread| thread.role == *role)
    }

    /// Guest memory on each node, as (node, bytes), by node.
    pub fn memory_by_node(&self) -> Vec<(u32, Bytes)> {
        let mut nodes = std::collections::BTreeMap::new();
        for mapping in self.residency.iter().filter(|mapping| mapping.guest_memory) {
            for (node, pages) in &mapping.pages {
                let sum = nodes.entry(*node).or_insert(Bytes::ZERO);
                *sum = sum.plus(mapping.page_size.bytes().times(*pages));
            }
        }
        nodes.into_iter().collect()
    }
}
