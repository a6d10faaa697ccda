//! What was read, before anything is made of it.

use nearmetal_domain::DomainFacts;
use nearmetal_host::guests::{OpenFile, QemuCell};
use nearmetal_host::{GuestAccesses, GuestProcess};
use nearmetal_hypervisor::DomainState;
use nearmetal_units::{Bytes, PageSize, PciAddress};

use super::interrupts::{DriveInterrupts, ObservedInterrupt};
use super::{EngineEvidence, GuestView};
use crate::devices::NetworkSettings;
use crate::devices::link::Link;
use crate::shared::Seen;

/// Everything a verdict rests on. What could not be read is an `Err` with the reason.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The QEMU process; `None` if the guest is off.
    pub guest: Result<Option<GuestProcess>, String>,
    /// What libvirt says the guest is doing; `None` if it is off.
    pub state: Option<Result<DomainState, String>>,
    /// Why what libvirt stores under the guest's name is not the planned guest's; `None`: it is.
    pub another: Option<String>,
    /// Pools of the nodes and sizes the plan speaks of.
    pub pools: Vec<ObservedPool>,
    /// The stored definition.
    pub stored: Result<DomainFacts, String>,
    /// The definition in force; `None` if the guest is off.
    pub live: Option<Result<DomainFacts, String>>,
    /// The guest's NUMA cells as QEMU was told of them; `None` if the guest is off or none are planned.
    pub cells: Option<Result<ObservedCells, String>>,
    /// One per function the plan gives or the stored definition hands through.
    pub functions: Vec<ObservedFunction>,
    /// What is in the place of the boot unit; asked only where the plan has pools for this guest.
    pub boot_unit: Option<Result<Seen, String>>,
    /// What is in the place of libvirt's qemu hook; asked only where the plan needs it.
    pub hook: Option<Result<Seen, String>>,
    /// Which iothread serves which queue, by QEMU's word; `None` if it was not to be asked.
    pub queues: Option<Result<Vec<ObservedQueues>, String>>,
    /// Which memory its vCPUs touched; `None` if that was not to be watched.
    pub touched: Option<Result<GuestAccesses, String>>,
    /// Queues of vhost-net that QEMU has open; `None` if the guest is off or no interface is planned.
    pub vhost_queues: Option<Result<u32, String>>,
    /// One per planned disk.
    pub disks: Vec<ObservedDisk>,
    /// What the guest sees.
    pub view: Result<GuestView, String>,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedPool {
    /// Node.
    pub node: u32,
    /// Page size.
    pub size: PageSize,
    /// (nr_hugepages, surplus_hugepages).
    pub pages: Result<(u64, u64), String>,
}

/// What QEMU's command line says of the guest's NUMA.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedCells {
    /// Its cells.
    pub cells: Vec<QemuCell>,
    /// Distances between them, as (from, to, distance).
    pub distances: Vec<(u32, u32, u32)>,
}

/// A PCI function while the guest that is given it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedFunction {
    /// Which.
    pub function: PciAddress,
    /// The driver that holds it on the host; `None` for none.
    pub driver: Result<Option<String>, String>,
    /// Its node; `None` where the firmware does not say.
    pub node: Result<Option<u32>, String>,
    /// The descriptor's target by which QEMU holds its IOMMU group or the function itself; `None` if it holds neither.
    pub held: Result<Option<String>, String>,
    /// Whether the machine has it.
    pub present: bool,
    /// Another guest that holds it.
    pub holder: Option<String>,
    /// Its IOMMU group; `None` for none.
    pub group: Result<Option<ObservedGroup>, String>,
    /// The network card it is a virtual function of.
    pub card: Option<ObservedCard>,
    /// Vendor and device id.
    pub id: Option<(u16, u16)>,
    /// Its interrupts on the host; none where the guest has switched none on.
    pub interrupts: Result<Vec<ObservedInterrupt>, String>,
}

/// An IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedGroup {
    /// Its number.
    pub number: String,
    /// Type of the domain it has while the host drives it: `identity`, `DMA`, `DMA-FQ`; `None` before Linux 5.11. A guest's
    /// own domain is always translated.
    pub domain: Option<String>,
}

/// The network card of a virtual function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCard {
    /// Its address.
    pub function: PciAddress,
    /// Its interface.
    pub interface: String,
    /// Whether it has a link.
    pub link: Link,
    /// Number of the virtual function, and its row in the card's table.
    pub row: Result<(usize, NetworkSettings), String>,
}

/// Queues of one disk, each with the iothread that serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedQueues {
    /// Target name, `vda`.
    pub target: String,
    /// Name of the iothread of each queue, by queue; `None` for QEMU's main loop. `Err` where QEMU did not tell.
    pub iothreads: Result<Vec<Option<String>>, String>,
    /// Thread ids of all iothreads of the guest, by name.
    pub threads: Vec<(String, u32)>,
}

/// One disk of a running guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedDisk {
    /// Target name, `vda`.
    pub target: String,
    /// Where its source really lies, links resolved.
    pub source: Option<String>,
    /// Size of the source, where it is a block device.
    pub size: Option<Bytes>,
    /// Descriptors of QEMU that have the source open.
    pub files: Result<Vec<OpenFile>, String>,
    /// What moved while it was read from.
    pub engine: EngineEvidence,
    /// The block device behind it with the interrupts of its drive, where it is one of a PCI drive.
    pub drive: Option<(String, DriveInterrupts)>,
}

/// An io_uring instance of QEMU between two looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingMovement {
    /// Its descriptor.
    pub fd: u32,
    /// Submission entries.
    pub entries: u32,
    /// Whether it waits for descriptors, as an event loop's does.
    pub waits: bool,
    /// Completions between the two looks.
    pub completions: u32,
}
