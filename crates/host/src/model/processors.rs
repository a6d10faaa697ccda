//! PUs, cores, and the sets the hardware groups them into.

use nearmetal_units::{Bytes, CpuSet};
use serde::{Deserialize, Serialize};

/// One PU (hardware thread; libvirt's and Linux's "cpu").
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Processor {
    /// Operating-system index.
    pub index: u32,
    /// Whether the kernel schedules on it.
    pub online: bool,
    /// Package (socket) number, as the firmware gave it; `None` where it says -1. See [`crate::Host::packages`].
    pub package: Option<u32>,
    /// Core number inside the package.
    pub core: Option<u32>,
    /// PUs of the same core, itself included. `None` while offline.
    pub siblings: Option<CpuSet>,
    /// PUs that share its last-level cache, itself included.
    pub last_level_cache: Option<CpuSet>,
    /// Node it belongs to.
    pub node: Option<u32>,
}

/// One core: the PUs that share execution units by the kernel's word (`core_cpus_list`, `thread_siblings`). Two guests
/// on one such core slow each other down, so that this is what a planner hands out whole.
///
/// AMD family 15h (Bulldozer to Excavator) pairs two cores in a module that share front end, floating point and L2. The
/// kernel lists them as siblings with a core number each; such a module is one entry here with two `numbers`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Core {
    /// Package (socket) number.
    pub package: Option<u32>,
    /// Core number inside the package; not unique over packages, and with gaps on many machines.
    pub core: Option<u32>,
    /// Its online PUs.
    pub cpus: CpuSet,
    /// Node of its PUs.
    pub node: Option<u32>,
    /// Distinct core numbers of its PUs, rising: more than one on a module of several cores; empty if unknown.
    #[serde(default)]
    pub numbers: Vec<u32>,
}

impl Core {
    /// Cores as the vendor and hwloc count them: 1, or 2 for a module of AMD family 15h.
    pub fn count(&self) -> usize {
        self.numbers.len().max(1)
    }
}

/// PUs the kernel lists together: a package, a die, a cluster, a book, a drawer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuGroup {
    /// The firmware's number; `None` where it gave none (-1), and not unique on every machine.
    pub number: Option<u32>,
    /// Its online PUs.
    pub cpus: CpuSet,
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// Data alone.
    Data,
    /// Instructions alone.
    Instruction,
    /// Both.
    Unified,
}

/// One cache of processors. Memory-side caches belong to nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u32,
    /// What it holds.
    pub kind: Option<CacheKind>,
    /// Its size.
    pub size: Option<Bytes>,
    /// Length of a line.
    pub line: Option<Bytes>,
    /// Ways of associativity; 0 is fully associative.
    pub ways: Option<u32>,
    /// Online PUs that share it.
    pub cpus: CpuSet,
}

/// Cores of one kind, on machines that have several (hybrid x86, big.LITTLE).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreKind {
    /// The kernel's name for it: `cpu_core`, `cpu_atom`, `capacity 1024`, `midr 0x410fd870`, `base 2300 MHz`.
    pub name: String,
    /// Its online PUs.
    pub cpus: CpuSet,
    /// The scheduler's measure of speed, where the kernel gives it: 1024 is the fastest (`cpu_capacity`).
    pub capacity: Option<u32>,
    /// Highest frequency in kHz (`cpuinfo_max_freq` of its first PU).
    pub max_frequency: Option<u64>,
}
