//! What the operator may decide; every default has its reason here.

use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

/// Whether the core of the lowest online PU is the host's. Interrupts that belong nowhere else, timers and the host's
/// own daemons run there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Housekeeping {
    /// Kept for the host unless a guest could then not be next to its device, or not be inside one node.
    #[default]
    Prefer,
    /// No vCPU is ever placed there.
    Keep,
    /// A core like any other.
    Share,
}

/// What each vCPU may run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinTo {
    /// A PU of its own.
    #[default]
    Pu,
    /// All PUs of the guest's nodes that carry nobody else's vCPUs or helper threads, and are not the host's core.
    Node,
}

/// Where a helper thread of QEMU runs: its main loop and, with the engine `threads`, the workers that do its disk requests; or an
/// iothread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HelperOn {
    /// On a PU of their own.
    #[default]
    Pu,
    /// On that PU, and on all PUs of the guest's nodes that carry nobody's vCPUs or helper threads.
    Node,
}

/// Who waits for work before a vCPU that has none sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Polling {
    /// As the definition has it, or the rules of its class ask for: the host, unless the guest is told otherwise.
    #[default]
    Keep,
    /// The host's KVM, for as long as its `halt_poll_ns` says (Documentation/virt/kvm/halt-polling).
    Host,
    /// The guest itself (cpuidle-haltpoll), which is told that its PUs are its own and may switch the host's polling off
    /// (Documentation/virt/guest-halt-polling). A Linux guest without that driver sleeps at once, as before.
    Guest,
}

/// Pairs of queues of interfaces that vhost-net carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InterfaceQueues {
    /// As the definition has them, or the rules of its class ask for.
    #[default]
    Keep,
    /// One.
    One,
    /// One for each vCPU.
    EachVcpu,
}

/// What becomes of the other PUs of cores that vCPUs run on, where cores have more than one (SMT).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Siblings {
    /// They carry vCPUs of the same guest.
    #[default]
    Use,
    /// They stay idle: each vCPU has a core for itself.
    Spare,
}

/// Choices the facts do not make. `Policy::default()` is what a server with a few dedicated guests wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The host's core. Default: kept where possible.
    pub housekeeping: Housekeeping,
    /// Whether guest memory is backed by a hugepage pool. Default: yes, in pages of 2 MiB.
    pub hugepages: bool,
    /// Whether pages of 1 GiB are tried first for guests whose memory is a multiple of it. Default: no, because pools of
    /// them rarely grow after boot (the kernel needs 1 GiB of contiguous free memory for each).
    pub gigantic_pages: bool,
    /// Memory of each node no plan takes, at least: the host's own, and what QEMU needs beside guest memory. Default
    /// 64 MiB.
    pub memory_reserve: Bytes,
    /// The same as a share of the node's memory, in percent; the larger of the two counts. Default 5.
    pub memory_reserve_percent: u8,
    /// What each vCPU may run on. Default: a PU of its own.
    pub pins: PinTo,
    /// Where the emulator thread runs. Default: on a PU of its own.
    pub emulator: HelperOn,
    /// Where iothreads run. Default: on a PU of their own.
    pub iothread_on: HelperOn,
    /// Siblings of the vCPUs' PUs. Default: used, since two threads of a core do more than one.
    pub siblings: Siblings,
    /// Whether a guest that lies on several nodes sees them, as cells of its own. Default: no, because a definition that shows
    /// none is not made to: what runs in the guest may count on it.
    pub guest_cells: bool,
    /// Iothreads of a guest with virtio-blk disks. Default 1: a second one pays only where one PU is full of disk work.
    pub iothreads: u32,
    /// Whether all iothreads take the queues of a disk in turns, as far as each has a PU of its own. Default: no, since it takes
    /// QEMU 9.0 and libvirt 10.0; each disk has one iothread.
    pub share_queues: bool,
    /// Who polls before a vCPU sleeps. Default: as it is.
    pub polling: Polling,
    /// Queues of virtio interfaces. Default: as they are.
    pub interface_queues: InterfaceQueues,
    /// Virtqueues of a disk at most. QEMU's default is one per vCPU (machine types since 5.2), and Linux guests use no
    /// more than that. Default 16: each queue costs an interrupt vector, and one iothread serves them all.
    pub max_queues: u32,
    /// PUs for the vhost workers of a guest alone, beside that of its emulator thread. Default 0: the workers share the
    /// emulator thread's PU, which is idle most of the time, and no hook of libvirt is needed.
    pub vhost_pus: u32,
    /// Whether interrupts of functions that are handed through are kept on the emulator thread's PU. Default: yes; it takes
    /// libvirt's qemu hook, since they exist only while the guest runs.
    pub place_interrupts: bool,
    /// What a plan may use of the machine, whatever it would be good for. Default: all of it.
    #[serde(skip_serializing_if = "Allowed::is_everything")]
    pub allowed: Allowed,
}

/// The part of a machine that a plan may use: what a batch system has given to a job, for one. A plan goes nowhere else,
/// with no thread and no page.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Allowed {
    /// PUs; `None`: all.
    pub cpus: Option<CpuSet>,
    /// Nodes of memory; `None`: all.
    pub nodes: Option<NodeSet>,
}

impl Allowed {
    /// Whether it leaves nothing out.
    pub fn is_everything(&self) -> bool {
        self.cpus.is_none() && self.nodes.is_none()
    }

    /// Whether a thread may run on that PU.
    pub(crate) fn has_cpu(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }

    /// Whether memory may come from that node.
    pub(crate) fn has_node(&self, node: u32) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            housekeeping: Housekeeping::Prefer,
            hugepages: true,
            gigantic_pages: false,
            memory_reserve: Bytes::from_mib(64),
            memory_reserve_percent: 5,
            pins: PinTo::Pu,
            emulator: HelperOn::Pu,
            iothread_on: HelperOn::Pu,
            siblings: Siblings::Use,
            guest_cells: false,
            iothreads: 1,
            share_queues: false,
            polling: Polling::Keep,
            interface_queues: InterfaceQueues::Keep,
            max_queues: 16,
            vhost_pus: 0,
            place_interrupts: true,
            allowed: Allowed::default(),
        }
    }
}

impl Policy {
    /// Memory kept free on a node of this size.
    pub fn reserve(&self, node_memory: Option<Bytes>) -> Bytes {
        let share = node_memory.unwrap_or_default().get() / 100 * u64::from(self.memory_reserve_percent.min(100));
        self.memory_reserve.max(Bytes::new(share))
    }
}
