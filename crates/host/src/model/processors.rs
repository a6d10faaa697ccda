//! PUs and cores.

use nearmetal_units::CpuSet;
use serde::{Deserialize, Serialize};

/// One PU (hardware thread; libvirt's and Linux's "cpu").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Processor {
    /// Operating-system index.
    pub index: u32,
    /// Whether the kernel schedules on it.
    pub online: bool,
    /// Package (socket) number, as the firmware gave it.
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

/// One core: the PUs that share its execution units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Package (socket) number.
    pub package: Option<u32>,
    /// Core number inside the package; not unique over packages, and with gaps on many machines.
    pub core: Option<u32>,
    /// Its online PUs.
    pub cpus: CpuSet,
    /// Node of its PUs.
    pub node: Option<u32>,
}
