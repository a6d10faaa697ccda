//! The plan: where everything goes, and why. Plain data.

use nearmetal_units::{Bytes, CpuSet, MacAddress, NodeSet, PageSize, PciAddress, VlanId};
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
    /// One per vCPU, by vCPU number; empty for a guest that is better left floating: then nothing below is set but its
    /// devices.
    pub vcpus: Vec<VcpuPin>,
    /// PUs of the emulator thread (and with it of vhost workers and other helper threads).
    pub emulator: CpuSet,
    /// PUs of iothread 1, 2, …; empty for a guest without any.
    pub iothreads: Vec<CpuSet>,
    /// Memory.
    pub memory: MemoryPlacement,
    /// Disks whose driver options change.
    pub disks: Vec<DiskPlacement>,
    /// Network interfaces whose driver options change; others stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkPlacement>,
    /// NUMA as the guest sees it, by cell number; empty: it sees none, and cells its definition has stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<GuestCell>,
    /// PCI functions it is given; functions its definition has beside them stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DevicePlacement>,
    /// PUs of each vhost worker, in the order in which QEMU makes them, from the first again where there are more; empty:
    /// they run wherever the emulator thread may. Each lies inside `emulator`. Set after every start, by libvirt's qemu hook.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vhost: Vec<CpuSet>,
    /// PUs of the interrupts of all functions the guest is given; empty: they stay where the kernel puts them. Set after
    /// every start, by libvirt's qemu hook.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub interrupts: CpuSet,
    /// Threads of each core as the guest sees it, where vCPUs next to each other are pinned to PUs of one core: with 2,
    /// vCPUs 0 and 1 are threads of core 0. `None` leaves the guest's topology as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads_per_core: Option<u32>,
    /// Whether the guest polls by itself before a vCPU sleeps: KVM tells it that its PUs are its own (`hint-dedicated`), and lets it
    /// switch the host's polling off (`poll-control`). `None` leaves both as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_polls: Option<bool>,
    /// Why, one per decision, in the order a reader wants them.
    pub reasons: Vec<Reason>,
}

impl Placement {
    /// Whether it pins nothing: no vCPU pins, no emulator PUs, no memory nodes, and disks and interfaces as they are.
    pub fn is_floating(&self) -> bool {
        self.vcpus.is_empty()
    }

    /// Whether something is to be set after every start, which takes libvirt's qemu hook.
    pub fn needs_hook(&self) -> bool {
        !self.vhost.is_empty() || !self.interrupts.is_empty()
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

/// One NUMA node as the guest sees it, on one node of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCell {
    /// Its vCPUs, by vCPU number; those of all cells together are the guest's.
    pub vcpus: CpuSet,
    /// Its memory; that of all cells together is the guest's.
    pub memory: Bytes,
    /// The host's node behind it.
    pub node: u32,
    /// Distance to each cell, itself included, by cell number; 10 is local (ACPI SLIT). Empty: not told to the guest.
    pub distances: Vec<u32>,
}

/// A PCI function of the host that a guest is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicePlacement {
    /// The function, as the host names it.
    pub function: PciAddress,
    /// What it is, and so how it is given.
    pub kind: FunctionKind,
    /// Guest cell it is shown on; `None` where the guest sees no NUMA, or the function has no node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    /// The host's node it is on; `None` where the firmware does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// What a PCI function is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionKind {
    /// A function of its own: a whole device, or one of several.
    Whole,
    /// A virtual function (SR-IOV) that is no network interface.
    Virtual,
    /// A virtual function of a network interface: libvirt sets address and VLAN through the physical function.
    NetworkVirtual {
        /// Hardware address; `None`: libvirt makes one up and keeps it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mac: Option<MacAddress>,
        /// VLAN the function tags and untags; `None`: none is set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vlan: Option<VlanId>,
    },
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
    /// Iothreads 1 to this number take its queues in turns, and `iothread` is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iothreads: Option<u32>,
    /// Virtqueues.
    pub queues: Option<u32>,
}

/// What moves the packets of a virtio interface, in libvirt's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkBackend {
    /// QEMU's main thread, in user space.
    Qemu,
    /// Kernel threads of vhost-net, one for each queue.
    Vhost,
}

impl NetworkBackend {
    /// libvirt's word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Vhost => "vhost",
        }
    }
}

/// Driver options of one virtio interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPlacement {
    /// Its address, by which it is found.
    pub mac: MacAddress,
    /// What moves its packets.
    pub backend: NetworkBackend,
    /// Pairs of queues, from 1.
    pub queues: u32,
    /// Whether checksum and segmentation offloads are switched off; else they stay as they are.
    pub offloads_off: bool,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As plan files before these fields have it: no cells, devices or threads.
    const OLD: &str = r#"{"guest":"web1","uuid":"u","vcpus":[],"emulator":"","iothreads":[],"memory":{"nodes":"",
        "page_size":null,"pages":0},"disks":[],"reasons":[]}"#;

    #[test]
    fn a_placement_without_cells_and_devices_is_written_as_before_there_were_any() {
        let placement: Placement = serde_json::from_str(OLD).unwrap();
        assert!(placement.cells.is_empty() && placement.devices.is_empty() && placement.threads_per_core.is_none());
        let (now, before): (serde_json::Value, serde_json::Value) =
            (serde_json::to_value(&placement).unwrap(), serde_json::from_str(OLD).unwrap());
        assert_eq!(now, before);
    }

    #[test]
    fn cells_and_devices_come_back_as_written() {
        let kind = FunctionKind::NetworkVirtual {
            mac: Some("52:54:00:00:00:01".parse().unwrap()),
            vlan: Some(VlanId::try_from(100).unwrap()),
        };
        let function: PciAddress = "0000:3b:02.0".parse().unwrap();
        let placement = Placement {
            cells: vec![GuestCell {
                vcpus: "0-3".parse().unwrap(),
                memory: Bytes::from_mib(1024),
                node: 2,
                distances: vec![10],
            }],
            devices: vec![
                DevicePlacement { function, kind, cell: Some(0), node: Some(2) },
                DevicePlacement { function, kind: FunctionKind::Whole, cell: None, node: None },
            ],
            threads_per_core: Some(2),
            ..serde_json::from_str(OLD).unwrap()
        };
        let text = serde_json::to_string(&placement).unwrap();
        assert_eq!(serde_json::from_str::<Placement>(&text).unwrap(), placement);
        let junk = text.replace("\"vlan\":100", "\"vlan\":4095");
        assert!(serde_json::from_str::<Placement>(&junk).unwrap_err().to_string().contains("4095"));
    }
}
