//! What was read, before anything is made of it.

use nearmetal_domain::DomainFacts;
use nearmetal_host::GuestProcess;
use nearmetal_host::guests::{OpenFile, QemuCell};
use nearmetal_units::{Bytes, PageSize, PciAddress};

use super::{EngineEvidence, GuestView};

/// Everything a verdict rests on. What could not be read is an `Err` with the reason.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The QEMU process; `None` if the guest is off.
    pub guest: Result<Option<GuestProcess>, String>,
    /// Pools of the nodes and sizes the plan speaks of.
    pub pools: Vec<ObservedPool>,
    /// The stored definition.
    pub stored: Result<DomainFacts, String>,
    /// The definition in force; `None` if the guest is off.
    pub live: Option<Result<DomainFacts, String>>,
    /// The guest's NUMA cells as QEMU was told of them; `None` if the guest is off or none are planned.
    pub cells: Option<Result<ObservedCells, String>>,
    /// One per planned function; empty if the guest is off.
    pub functions: Vec<ObservedFunction>,
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
