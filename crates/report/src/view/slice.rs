//! What a VM occupies on its host.

use nearmetal_units::{CpuSet, NodeSet, PageSize, PciAddress};
use serde::{Deserialize, Serialize};

/// The PUs, nodes, pages and devices of one VM at one time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SliceView {
    /// Its threads (or groups of equal ones) and where they may run.
    pub threads: Vec<SliceThread>,
    /// Nodes its memory is bound to; empty if it is not bound.
    pub nodes: NodeSet,
    /// Whether that binding is strict: an allocation that does not fit fails instead of going elsewhere.
    pub strict: bool,
    /// Page size that backs its memory; `None` leaves it to the kernel (4 KiB and transparent huge pages).
    pub page_size: Option<PageSize>,
    /// Where its pages are; `None` if that was not read (the VM did not run).
    pub pages: Option<Vec<NodePages>>,
    /// Devices it works on.
    pub devices: Vec<SliceDevice>,
}

/// One thread, or a group of threads with the same role and PUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceThread {
    /// What it does.
    pub role: SliceRole,
    /// Number of the vCPU (from 0) or iothread (from 1), where it has one.
    pub number: Option<u32>,
    /// PUs it may run on.
    pub cpus: CpuSet,
    /// Whether it is left floating: not pinned, free to run wherever the scheduler puts it.
    pub floating: bool,
}

/// What a thread does for the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceRole {
    /// A virtual CPU.
    Vcpu,
    /// QEMU's main loop and its helpers.
    Emulator,
    /// A libvirt iothread.
    Iothread,
    /// A vhost worker.
    Vhost,
}

/// Pages of one size on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePages {
    /// Node.
    pub node: u32,
    /// Page size.
    pub size: PageSize,
    /// Number of pages of that size.
    pub pages: u64,
}

/// A device the VM works on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceDevice {
    /// Name on the host, `nvme0n1`, `eth0`.
    pub name: String,
    /// PCI function it hangs on.
    pub pci: Option<PciAddress>,
    /// Node of that function.
    pub node: Option<u32>,
    /// What the VM uses it as: "disk vda".
    pub purpose: String,
}
