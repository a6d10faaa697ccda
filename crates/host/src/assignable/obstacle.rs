//! Why a function cannot be given away.

use std::fmt;

use nearmetal_units::PciAddress;
use serde::Serialize;

/// A function that shares an IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupMember {
    /// Its address.
    pub function: PciAddress,
    /// Its driver.
    pub driver: Option<String>,
}

impl fmt::Display for GroupMember {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.function, self.driver.as_deref().unwrap_or("no driver"))
    }
}

/// One reason, with what causes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Obstacle {
    /// Nothing translates its DMA: a guest could write to all memory.
    NoIommu,
    /// The host drives others of its group, which can reach each other around the IOMMU.
    GroupShared {
        /// The group.
        group: u32,
        /// The others the host drives.
        with: Vec<GroupMember>,
    },
    /// A file system on it is mounted.
    Mounted {
        /// The device with the file system.
        device: String,
        /// Where.
        point: String,
    },
    /// The host swaps to it.
    Swap {
        /// The device.
        device: String,
    },
    /// Another block device is made of it: a volume of LVM, an array.
    Stacked {
        /// The device on this function.
        device: String,
        /// What is made of it.
        holder: String,
    },
    /// A guest has a drive of it open.
    Disk {
        /// The drive.
        device: String,
        /// The guest.
        guest: String,
    },
    /// The host's way to other networks leads through it.
    DefaultRoute {
        /// The interface.
        interface: String,
        /// The bridge or bond that has the route, if it is not the interface itself.
        through: Option<String>,
    },
    /// Its interface is a port of a bridge, switch or bond.
    Member {
        /// The interface.
        interface: String,
        /// What it belongs to.
        master: String,
    },
    /// Its interface is up: somebody may be logged in through it.
    InterfaceUp {
        /// The interface.
        interface: String,
    },
    /// Somebody whom neither drives nor interfaces of the host show.
    Used {
        /// By whom, in words.
        by: String,
    },
    /// The host's console is on it.
    Console,
    /// It has virtual functions, which end with its driver.
    HasVirtualFunctions {
        /// How many.
        count: u32,
    },
    /// The kernel knows no way to reset it: a guest that dies may leave it unusable, or leave data in it.
    NoReset,
    /// Something holds it that is not known to be a guest.
    Held {
        /// What is held: `/dev/vfio/17`, `/dev/nvme0n1`.
        device: String,
    },
}

impl fmt::Display for Obstacle {
    /// What is in the way, and what would help.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIommu => formatter.write_str(
                "no IOMMU translates its DMA: enable VT-d or AMD-Vi in the firmware, and intel_iommu=on where the kernel needs it",
            ),
            Self::GroupShared { group, with } => {
                let with: Vec<String> = with.iter().map(GroupMember::to_string).collect();
                write!(
                    formatter,
                    "its IOMMU group {group} is shared with {}, which the host drives: give those away too, or move the card to \
                     another slot",
                    with.join(" and ")
                )
            }
            Self::Mounted { device, point } if point == "/" => {
                write!(formatter, "the host's root file system is on `{device}`")
            }
            Self::Mounted { device, point } => write!(formatter, "`{device}` is mounted on `{point}`: unmount it first"),
            Self::Swap { device } => write!(formatter, "the host swaps to `{device}`: `swapoff /dev/{device}` first"),
            Self::Stacked { device, holder } => {
                write!(formatter, "`{holder}` is made of `{device}`: take that apart first")
            }
            Self::Disk { device, guest } => write!(formatter, "the guest `{guest}` has `{device}` open as a disk"),
            Self::DefaultRoute { interface, through: None } => {
                write!(formatter, "the host's default route leads through `{interface}`")
            }
            Self::DefaultRoute { interface, through: Some(through) } => {
                write!(formatter, "the host's default route leads through `{through}`, and `{interface}` is a port of it")
            }
            Self::Member { interface, master } => {
                write!(formatter, "`{interface}` is a port of `{master}`: `ip link set {interface} nomaster` first")
            }
            Self::InterfaceUp { interface } => {
                write!(formatter, "`{interface}` is up: `ip link set {interface} down` first, if nobody needs it")
            }
            Self::Used { by } => formatter.write_str(by),
            Self::Console => formatter.write_str("the host's console is on it"),
            Self::HasVirtualFunctions { count } => {
                write!(formatter, "it has {count} virtual functions, which would vanish: give those away, or remove them first")
            }
            Self::NoReset => formatter.write_str(
                "the kernel knows no way to reset it: a guest that dies would leave it as it is, for the next one to find",
            ),
            Self::Held { device } => write!(formatter, "some process holds `{device}`: `fuser -v {device}` says which"),
        }
    }
}
