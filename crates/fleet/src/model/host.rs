//! What a host has left to give.

use std::collections::BTreeMap;

use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};
use serde::{Deserialize, Serialize};

/// A host as the planner sees it: only what may be given to VMs of the fleet. What the ledger holds for others, offline
/// and isolated PUs and the housekeeping reserve are left out already.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FleetHost {
    /// Its name, unique in the fleet.
    pub name: String,
    /// Labels for [`super::HostSelector`].
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Rack, power feed or room whose failure takes it down with others; `None`: none but its own.
    #[serde(default)]
    pub failure_domain: Option<String>,
    /// Nodes by rising index, memory-less and CPU-less ones included.
    pub nodes: Vec<NodeSupply>,
    /// SLIT distances by position in `nodes`: `distances[from][to]`, 10 is local.
    pub distances: Vec<Vec<u32>>,
    /// Devices, those of one kind and node in one entry.
    #[serde(default)]
    pub devices: Vec<DeviceSupply>,
    /// What could not be known, or is easily missed, in sentences: the plan's assumptions.
    #[serde(default)]
    pub unknown: Vec<String>,
}

/// A node and what is free of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeSupply {
    /// Operating-system index.
    pub index: u32,
    /// Package it is in, by position on the host; `None` where unknown: then no other node is in the same one.
    pub package: Option<u32>,
    /// Cores with a free PU.
    pub cores: Vec<CoreSupply>,
    /// Memory that can become guest memory in the kernel's own pages, pools aside.
    pub memory: Bytes,
    /// Pools by page size.
    pub pools: Vec<PoolSupply>,
    /// PUs the host keeps for itself; emulator threads of VMs may run there.
    #[serde(default)]
    pub housekeeping: CpuSet,
}

/// A core with a free PU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CoreSupply {
    /// Its free PUs, rising.
    pub free: Vec<u32>,
    /// Its online PUs, free or not: a core is whole while all of them are free.
    pub threads: u32,
    /// L3 domain: the lowest PU that shares its last-level cache.
    pub l3: u32,
    /// Its kind among those of its host, 0 the fastest; 0 on all where they are alike.
    #[serde(default)]
    pub kind: u32,
}

/// A node's pool of one page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSupply {
    /// Page size.
    pub size: PageSize,
    /// Free pages promised to nobody.
    pub free: u64,
    /// Whether a plan may add pages from the node's memory. Pages of 1 GiB rarely can be had after boot.
    pub may_grow: bool,
}

/// Devices of one kind on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSupply {
    /// What they are.
    pub kind: DeviceKind,
    /// Their node, by position in [`FleetHost::nodes`]; `None` where the firmware does not say: equally far from all.
    pub node: Option<u32>,
    /// The free functions; empty for a shared device.
    pub functions: Vec<PciAddress>,
    /// How many are free. Equal to the length of `functions` where these are known; ignored for a shared device.
    pub free: u32,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Virtual functions of one physical function.
    VirtualFunctions {
        /// Its interface name, or else its address.
        of: String,
    },
    /// Whole functions.
    Function {
        /// Vendor id.
        vendor: u16,
        /// Device id.
        device: u16,
        /// Base class and subclass.
        class: u16,
    },
    /// An interface, drive or pool any number of VMs may use.
    Shared {
        /// Its name.
        name: String,
    },
}
