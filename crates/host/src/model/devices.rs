//! PCI functions, block devices, network interfaces.

use nearmetal_units::{Bytes, PciAddress};
use serde::{Deserialize, Serialize};

use super::tuning::BlockQueue;

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
    /// The bridge above it; `None` on a root bus.
    #[serde(default)]
    pub parent: Option<PciAddress>,
    /// Its PCI Express link; `None` for conventional PCI and functions inside the root complex.
    #[serde(default)]
    pub link: Option<PciLink>,
    /// Ways to reset it, in the kernel's order; `None` before Linux 5.15, empty where there is none: a guest that dies
    /// may leave it unusable.
    #[serde(default)]
    pub resets: Option<Vec<String>>,
    /// Its memory and port regions that have a size.
    #[serde(default)]
    pub bars: Vec<PciBar>,
    /// Access control services of a bridge; `None` for other functions, and where only root may read them.
    #[serde(default)]
    pub access_control: Option<AccessControl>,
    /// How its DMA is translated while the host drives it: `identity`, `DMA`, `DMA-FQ` or `auto`. Read for functions that
    /// guests are given; `None` for others, and before Linux 5.11.
    #[serde(default)]
    pub dma_domain: Option<String>,
    /// Whether the host's console is on it: a display the firmware booted with, or a serial port among /proc/consoles.
    /// `None` for functions that are neither.
    #[serde(default)]
    pub console: Option<bool>,
}

/// A PCI Express link. Speeds are megatransfers per second and lane: 8000 is `8.0 GT/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PciLink {
    /// Speed now.
    pub speed: Option<u32>,
    /// Lanes now.
    pub width: Option<u32>,
    /// Speed the function is able to.
    pub max_speed: Option<u32>,
    /// Lanes the function is able to.
    pub max_width: Option<u32>,
}

/// A region of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciBar {
    /// 0 to 5; 6 is the expansion ROM.
    pub index: u32,
    /// Its size.
    pub size: Bytes,
    /// Whether it is in port space rather than in memory.
    pub ports: bool,
    /// Whether reads have no effect.
    pub prefetchable: bool,
    /// Whether it may lie above 4 GiB.
    pub wide: bool,
}

/// Access control services: whether functions below a bridge can reach each other around the IOMMU.
/// PCI Express Base Specification, extended capability 0x000d.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessControl {
    /// The bridge has none.
    Absent,
    /// The bridge has them.
    Present {
        /// What it is able to: bit 0 source validation, 2 request redirect, 3 completion redirect, 4 upstream forwarding.
        able: u16,
        /// What is on, the same bits.
        enabled: u16,
    },
}

impl PciDevice {
    /// Whether it joins two PCI buses: a port of the root complex or of a switch (class 0x0604).
    pub fn is_bridge(&self) -> bool {
        self.class.is_some_and(|class| class >> 8 == 0x0604)
    }

    /// The driver of VFIO it is bound to, which hands it to guests: `vfio-pci`, or one of a vendor's own.
    pub fn vfio_driver(&self) -> Option<&str> {
        self.driver.as_deref().filter(|driver| driver.contains("vfio"))
    }

    /// What guests are given: storage, network, display, accelerators. `None` for bridges and the rest.
    pub fn kind(&self) -> Option<&'static str> {
        match self.class? >> 8 {
            0x0108 => Some("nvme"),
            0x0100..=0x01ff => Some("storage"),
            0x0207 => Some("infiniband"),
            0x0200..=0x02ff => Some("network"),
            0x0300..=0x03ff => Some("display"),
            0x0b40 => Some("coprocessor"),
            0x1200..=0x12ff => Some("accelerator"),
            _ => None,
        }
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
    /// The hidden device whose queues and scheduler serve it: the first path (`nvme0c0n1`) of a multipath NVMe namespace.
    #[serde(default)]
    pub served_by: Option<String>,
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
    /// Names of the devices it is stacked on.
    #[serde(default)]
    pub parts: Vec<String>,
    /// What maps a device-mapper device: `LVM`, `CRYPT`, `mpath`, `part`, ….
    #[serde(default)]
    pub mapping: Option<String>,
    /// Name of a device-mapper device, `vg0-root`.
    #[serde(default)]
    pub mapped_name: Option<String>,
    /// Level of a software RAID: `raid1`, `linear`, ….
    #[serde(default)]
    pub raid_level: Option<String>,
    /// For a partition: where it begins on the whole device.
    #[serde(default)]
    pub start: Option<Bytes>,
    /// Size of requests the device handles best; `None` where it does not say.
    #[serde(default)]
    pub optimal_io: Option<Bytes>,
    /// Reads and writes completed since boot; `None` for partitions.
    #[serde(default)]
    pub requests: Option<u64>,
    /// How its requests are handled; of the whole device for a partition.
    #[serde(default)]
    pub queue: BlockQueue,
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
    /// Speed of its link in Mbit/s; `None` while it is down, and for most virtual ones.
    #[serde(default)]
    pub speed: Option<u64>,
    /// Largest packet.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Hardware address.
    #[serde(default)]
    pub mac: Option<String>,
    /// What it is, where the kernel says: `bridge`, `bond`, `vlan`, `vxlan`, `wlan`, `tap`.
    #[serde(default)]
    pub kind: Option<String>,
    /// Whether a default route, of IPv4 or IPv6, leads out through it; `None` where the source has no table of routes.
    #[serde(default)]
    pub default_route: Option<bool>,
    /// Its virtual functions, by number.
    #[serde(default)]
    pub virtual_functions: Vec<VirtualFunction>,
    /// Work its hardware or driver takes off the network stack; empty where it was not asked.
    #[serde(default)]
    pub offloads: Vec<Offload>,
}

/// One feature of `ethtool -k`: netlink alone tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// `tcp-segmentation-offload`, `generic-receive-offload`, ….
    pub name: String,
    /// Whether it is on.
    pub on: bool,
    /// Whether nobody can change it.
    pub fixed: bool,
}

/// A row of a network card's table of virtual functions. Most drivers tell MAC, VLAN and trust by netlink alone: `None`
/// is not known, not unset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VirtualFunction {
    /// Its number, from 0.
    pub number: u32,
    /// Its PCI function.
    pub function: Option<PciAddress>,
    /// The address its card gives it.
    pub mac: Option<String>,
    /// The VLAN its card puts it in.
    pub vlan: Option<u32>,
    /// Whether it may change its address and listen to all.
    pub trusted: Option<bool>,
    /// Whether its card drops packets it sends with another address than its own.
    #[serde(default)]
    pub spoof_check: Option<bool>,
    /// The most it may send, in Mbit/s; 0 for no limit.
    #[serde(default)]
    pub max_rate: Option<u32>,
}
