//! Open vSwitch, by its own word.

use nearmetal_units::{CpuSet, PciAddress};
use serde::{Deserialize, Serialize};

/// What Open vSwitch's database says of its packet processing in user space (DPDK).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OpenVswitch {
    /// Whether DPDK is asked for (`other_config:dpdk-init`).
    pub dpdk: bool,
    /// PUs its polling threads may run on (`other_config:pmd-cpu-mask`); `None` where it chooses itself.
    pub polling_cpus: Option<CpuSet>,
    /// Interfaces of type `dpdk`, in the database's order.
    pub ports: Vec<DpdkPort>,
}

/// A network card that Open vSwitch drives itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DpdkPort {
    /// The interface's name.
    pub name: String,
    /// Its PCI function (`options:dpdk-devargs`), where it has one.
    pub function: Option<PciAddress>,
}
