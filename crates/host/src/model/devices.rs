//! PCI functions, block devices, network interfaces.

use nearmetal_units::{Bytes, PciAddress};
use serde::{Deserialize, Serialize};

/// One PCI function.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PciDevice {
    /// Address.
    pub address: PciAddress,
    /// 24-bit class code, such as 0x010802 for NVMe.
    pub class: Option<u32>,
    /// Vendor id.
    pub vendor: Option<u16>,
    /// Device id.
    pub device: Option<u16>,
    /// Node, `None` where the kernel says -1 (the firmware gave no affinity).
    pub node: Option<u32>,
    /// Bound driver.
    pub driver: Option<String>,
    /// IOMMU group; `None` without an IOMMU.
    pub iommu_group: Option<u32>,
    /// SR-IOV state of a physical function.
    pub sriov: Option<SriovState>,
    /// The physical function of a virtual one.
    pub physical_function: Option<PciAddress>,
}

impl PciDevice {
    /// Whether it joins two PCI buses: a port of the root complex or of a switch (class 0x0604).
    pub fn is_bridge(&self) -> bool {
        self.class.is_some_and(|class| class >> 8 == 0x0604)
    }
}

/// SR-IOV of a physical function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SriovState {
    /// VFs it can have.
    pub total_vfs: u32,
    /// VFs it has now.
    pub vfs: u32,
    /// Addresses of those VFs, in VF order.
    pub functions: Vec<PciAddress>,
}

/// A whole block device or a partition.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Kernel name, `nvme0n1`.
    pub name: String,
    /// Size.
    pub size: Option<Bytes>,
    /// `major:minor`.
    pub number: Option<String>,
    /// For a partition: the whole device's name.
    pub partition_of: Option<String>,
    /// Spinning disk or not.
    pub rotational: Option<bool>,
    /// The scheduler in force (the bracketed word), `none` included.
    pub scheduler: Option<String>,
    /// Hardware queues.
    pub queues: Option<u32>,
    /// Logical block size.
    pub logical_block: Option<Bytes>,
    /// Physical block size.
    pub physical_block: Option<Bytes>,
    /// PCI function it hangs on.
    pub pci: Option<PciAddress>,
    /// All functions that lead to it: more than one with NVMe multipath, where `pci` is the first physical one.
    #[serde(default)]
    pub paths: Vec<PciAddress>,
    /// Node of that function.
    pub node: Option<u32>,
    /// Names of devices stacked on it (dm, md).
    pub holders: Vec<String>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NetworkInterface {
    /// Name, `eth0`.
    pub name: String,
    /// PCI function it hangs on; `None` for virtual ones.
    pub pci: Option<PciAddress>,
    /// Node of that function.
    pub node: Option<u32>,
    /// Bound driver.
    pub driver: Option<String>,
    /// The bridge or bond it belongs to.
    pub master: Option<String>,
    /// Receive queues.
    pub receive_queues: Option<u32>,
    /// Transmit queues.
    pub transmit_queues: Option<u32>,
    /// Operational state, `up`, `down`, `unknown`, ….
    pub state: Option<String>,
}
