//! The plan: where everything goes, and why. Plain data.

use nearmetal_units::{CpuSet, NodeSet, PageSize};
use serde::{Deserialize, Serialize};

/// Where guests go on one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// One per guest that could be placed, in the order asked.
    pub placements: Vec<Placement>,
    /// Hugepage pools the plan rests on, by node and size; some are large enough already.
    pub pools: Vec<PoolChange>,
    /// Guests that could not be placed, each with the reason.
    pub blocked: Vec<Blocker>,
}

/// The slice and the data path of one guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Domain name.
    pub guest: String,
    /// Domain UUID.
    pub uuid: String,
    /// One per vCPU, by vCPU number; empty for a guest that is better left floating: then nothing below is set.
    pub vcpus: Vec<VcpuPin>,
    /// PUs of the emulator thread (and with it of vhost workers and other helper threads).
    pub emulator: CpuSet,
    /// PUs of iothread 1, 2, …; empty for a guest without any.
    pub iothreads: Vec<CpuSet>,
    /// Memory.
    pub memory: MemoryPlacement,
    /// Disks whose driver options change.
    pub disks: Vec<DiskPlacement>,
    /// Why, one per decision, in the order a reader wants them.
    pub reasons: Vec<Reason>,
}

impl Placement {
    /// Whether it pins nothing: no vCPU pins, no emulator PUs, no memory nodes, and disks as they are.
    pub fn is_floating(&self) -> bool {
        self.vcpus.is_empty()
    }
}

/// One vCPU and the PUs it may run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuPin {
    /// vCPU number.
    pub vcpu: u32,
    /// PUs; a single one for a dedicated vCPU.
    pub cpus: CpuSet,
}

/// Where guest memory comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryPlacement {
    /// Nodes, strictly: an allocation that does not fit fails instead of going elsewhere.
    pub nodes: NodeSet,
    /// Page size to back it with; `None` leaves it to the kernel (4 KiB pages and transparent huge pages).
    pub page_size: Option<PageSize>,
    /// Pages of that size it needs (zero without a page size).
    pub pages: u64,
}

/// Host page cache of a disk, in libvirt's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// O_DIRECT, guest flushes honoured.
    None,
    /// Host page cache, guest flushes honoured.
    Writeback,
}

/// How QEMU submits block I/O, in libvirt's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskEngine {
    /// A pool of worker threads.
    Threads,
    /// Linux AIO; asynchronous only with O_DIRECT.
    Native,
    /// io_uring; QEMU falls back to threads silently where the kernel refuses it.
    IoUring,
}

/// Driver options of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPlacement {
    /// Target name in the guest, `vda`.
    pub target: String,
    /// The kernel's name of the block device behind it when the plan was made, where the domain names it by a link
    /// (/dev/disk/by-id/…) that cannot be followed afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_device: Option<String>,
    /// Host page cache.
    pub cache: CacheMode,
    /// Submission engine.
    pub engine: DiskEngine,
    /// Number of the iothread that serves it, from 1.
    pub iothread: Option<u32>,
    /// Virtqueues.
    pub queues: Option<u32>,
}

/// A hugepage pool to resize. Counts are persistent pages (total minus surplus).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolChange {
    /// Node.
    pub node: u32,
    /// Page size.
    pub size: PageSize,
    /// Persistent pages now.
    pub before: u64,
    /// Persistent pages the plan needs.
    pub after: u64,
}

/// Why a decision is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What was decided: `node`, `vcpu pins`, `emulator`, `iothread`, `memory`, `hugepages`, `disk vda`, ….
    pub subject: String,
    /// The choice, with its values.
    pub choice: String,
    /// Why, one sentence, with the facts it rests on.
    pub because: String,
    /// Paper, kernel or libvirt document behind the rule.
    pub source: Option<String>,
}

/// A guest that could not be placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Domain name.
    pub guest: String,
    /// What is missing, with both numbers of the limit.
    pub problem: String,
    /// The smallest change that would place it.
    pub remedy: String,
}
