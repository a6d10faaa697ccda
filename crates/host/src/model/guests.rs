//! Running QEMU processes as the kernel shows them: threads and pages, no configuration.

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
