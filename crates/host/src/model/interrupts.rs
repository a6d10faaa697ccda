//! Interrupts and control groups.

use nearmetal_units::{CpuSet, NodeSet, PciAddress};
use serde::{Deserialize, Serialize};

/// One interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Interrupt {
    /// Its number in /proc/irq.
    pub number: u32,
    /// The PCI function that raises it, by its message-signalled interrupts.
    pub device: Option<PciAddress>,
    /// Who asked for it: `nvme0q3`, `eth0-TxRx-1`; empty if nobody did.
    pub actions: Vec<String>,
    /// PUs it may go to.
    pub affinity: Option<CpuSet>,
    /// PUs it does go to.
    pub effective: Option<CpuSet>,
}

/// A control group that limits PUs or nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cpuset {
    /// Its path below the hierarchy: `/machine.slice`.
    pub path: String,
    /// Version of the hierarchy, 1 or 2.
    pub version: u32,
    /// PUs asked for; empty: those of its parent.
    pub cpus: Option<CpuSet>,
    /// PUs its processes may use.
    pub effective_cpus: Option<CpuSet>,
    /// Nodes asked for; empty: those of its parent.
    pub nodes: Option<NodeSet>,
    /// Nodes its processes may take memory from.
    pub effective_nodes: Option<NodeSet>,
    /// Whether no sibling may use its PUs: `root` or `isolated` in version 2, `exclusive` in version 1.
    pub partition: Option<String>,
    /// Whether page cache is spread over all its nodes (version 1 alone).
    #[serde(default)]
    pub spread_page: Option<bool>,
    /// Whether some kernel memory is spread over all its nodes (version 1 alone).
    #[serde(default)]
    pub spread_slab: Option<bool>,
}

impl Cpuset {
    /// Whether it is an isolated partition (version 2): the scheduler balances no load onto its PUs.
    pub fn is_isolated(&self) -> bool {
        self.partition.as_deref() == Some("isolated")
    }
}
