//! A VM as its owner asks for it.

use std::collections::BTreeMap;

use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize, PciAddress};
use serde::{Deserialize, Serialize};

use super::host::FleetHost;
use super::plan::VmPlacement;

/// One VM to place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    /// Its name, unique in the fleet.
    pub name: String,
    /// Virtual CPUs, at least 1.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: Bytes,
    /// Hugepage pool that backs it; `None` for the kernel's own pages.
    #[serde(default)]
    pub page_size: Option<PageSize>,
    /// Workload class.
    #[serde(default)]
    pub class: WorkloadClass,
    /// How its vCPUs may use the PUs of a core.
    #[serde(default)]
    pub smt: SmtPolicy,
    /// Whether it owns its PUs.
    #[serde(default)]
    pub cpus: CpuSharing,
    /// The NUMA topology its guest sees.
    #[serde(default)]
    pub numa: GuestNuma,
    /// Host devices it uses.
    #[serde(default)]
    pub devices: Vec<DeviceDemand>,
    /// Which VMs it must be with, or must not be with.
    #[serde(default)]
    pub groups: Vec<GroupRule>,
    /// Hosts it may be on.
    #[serde(default)]
    pub hosts: HostSelector,
    /// Higher is placed first; VMs of a lower priority never cost one of a higher its place.
    #[serde(default)]
    pub priority: i32,
    /// Where it runs now. It stays there unless `movable`; what it holds there must count as free in the hosts. One
    /// without cells floats over its host, or does not run as it is asked for: it stays on that host, and a plan may put it
    /// anywhere there.
    #[serde(default)]
    pub current: Option<VmPlacement>,
    /// Whether a plan may move it from where it runs.
    #[serde(default)]
    pub movable: bool,
}

impl Vm {
    /// The place it keeps whatever a plan is: it runs there, and may not be moved.
    pub(crate) fn kept(&self) -> Option<&VmPlacement> {
        self.current.as_ref().filter(|current| !self.movable && !current.cells.is_empty())
    }

    /// How it uses PUs. A VM of class density floats even where it asks for PUs of its own: one vCPU a PU is then the
    /// most its node carries.
    pub fn sharing(&self) -> CpuSharing {
        match (self.cpus, self.class) {
            (CpuSharing::Dedicated, WorkloadClass::Density) => CpuSharing::Shared { ratio_percent: 100 },
            (cpus, _) => cpus,
        }
    }

    /// A VM of the defaults: dedicated PUs, the kernel's pages, no devices, one guest cell where it fits.
    pub fn new(name: impl Into<String>, vcpus: u32, memory: Bytes) -> Self {
        Self {
            name: name.into(),
            vcpus,
            memory,
            page_size: None,
            class: WorkloadClass::General,
            smt: SmtPolicy::default(),
            cpus: CpuSharing::default(),
            numa: GuestNuma::default(),
            devices: Vec::new(),
            groups: Vec::new(),
            hosts: HostSelector::default(),
            priority: 0,
            current: None,
            movable: false,
        }
    }
}

/// How vCPUs may use the PUs of a core. Nova's words (hw:cpu_thread_policy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SmtPolicy {
    /// Whole cores where there are some, else any PUs.
    #[default]
    Prefer,
    /// One vCPU a core; the core's other PUs stay idle.
    Isolate,
    /// Only whole free cores of two or more PUs. PUs of the last core the VM does not fill are left to others.
    Require,
    /// Any PUs; cores that others use in part are filled first.
    None,
}

/// Whether a VM owns its PUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuSharing {
    /// One PU a vCPU, its own.
    #[default]
    Dedicated,
    /// vCPUs float over the PUs of the node nobody owns.
    Shared {
        /// vCPUs a PU may carry, in percent: 400 is four vCPUs a PU.
        ratio_percent: u32,
    },
}

/// The NUMA topology a guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestNuma {
    /// None: one node if it fits, otherwise the nearest nodes, which the guest does not see.
    #[default]
    Hidden,
    /// One node if it fits, otherwise a cell for each node it gets, with the host's distances: each has vCPUs and their
    /// share of the memory.
    Mirror,
    /// Exactly so many cells, each whole on a node of its own; vCPUs and memory are shared out evenly, memory by vCPUs.
    Cells(u32),
}

/// Some host devices of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceDemand {
    /// Which devices will do.
    pub selector: DeviceSelector,
    /// How many, each a different function; 1 for shared devices.
    pub count: u32,
    /// How near they must be to the VM.
    pub locality: Locality,
}

/// Which devices will do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceSelector {
    /// A free virtual function, of the physical function with this name or address, or of any.
    VirtualFunction {
        /// Interface name or PCI address of the physical function; `None` for any.
        of: Option<String>,
    },
    /// A whole PCI function by vendor and device id.
    Id {
        /// Vendor id.
        vendor: u16,
        /// Device id.
        device: u16,
    },
    /// A whole PCI function by class; the mask of bytes given counts: 0x0302 is any 3D controller.
    Class {
        /// The upper 16 bits of the class code: base class and subclass.
        class: u16,
    },
    /// This very function, virtual or whole. It must be a supply of its own, as [`super::FleetHost::set_apart`] makes it.
    Function(PciAddress),
    /// A device the host shares out by name (virtio, vhost or macvtap on a network interface, a disk on a drive or pool):
    /// any number of VMs use it, and it only decides which node is near.
    Shared {
        /// Interface, drive or pool.
        name: String,
    },
}

/// How near a device must be to the VM's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Locality {
    /// On one of the VM's nodes, or the VM is refused.
    Required,
    /// As near as can be.
    #[default]
    Preferred,
    /// Anywhere on the host; the distance costs nothing.
    Far,
}

/// A VM's part in a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupRule {
    /// Name of the group.
    pub group: String,
    /// What members share or must not share.
    pub scope: Scope,
    /// Together or apart.
    pub rule: Together,
}

/// What members of a group share or must not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// A host.
    Host,
    /// A NUMA node.
    Node,
    /// A failure domain: hosts with the same [`super::FleetHost::failure_domain`]; a host without one is its own.
    FailureDomain,
}

/// Together or apart. Every rule is a constraint: a VM whose rule cannot hold is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Together {
    /// All members that say so are in one place.
    Together,
    /// No two members share a place.
    Apart,
    /// Members with different labels share no place; those with the same label may.
    ApartFromOtherLabels(u32),
}

/// Hosts a VM may be on. Empty: all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct HostSelector {
    /// Names; empty for any.
    #[serde(default)]
    pub names: Vec<String>,
    /// Labels the host must have, with these values.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl HostSelector {
    /// Whether a VM may be on this host.
    pub fn admits(&self, host: &FleetHost) -> bool {
        (self.names.is_empty() || self.names.contains(&host.name))
            && self.labels.iter().all(|(key, value)| host.labels.get(key) == Some(value))
    }
}
