//! Functions that guests can be given (PCI device assignment), and what stands in the way of each.
//!
//! Pure: from a host and its ledger. What only an attempt tells (a drive that a pool of ZFS holds) is not seen here.
//!
//! ```
//! use nearmetal_host::{assignable, ledger, synthetic::Synthetic};
//! let host = Synthetic::new().packages(2).network(1, 7, 2).build();
//! let found = assignable::examine(&host, &ledger::of(&host, &[]));
//! assert_eq!(found.iter().filter(|one| one.obstacles.is_empty()).count(), 2, "the virtual functions, not their card");
//! ```

mod obstacle;
mod text;
mod uses;

use std::collections::BTreeMap;

use nearmetal_units::PciAddress;
use serde::Serialize;

pub use obstacle::{GroupMember, Obstacle};
pub use text::render;
pub use uses::names;

use crate::ledger::{Ledger, Owner};
use crate::{Host, PciDevice, PciLink};

/// A function worth giving to a guest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assignable {
    /// Its address.
    pub function: PciAddress,
    /// `network`, `nvme`, `storage`, `display`, …; `other` for one that is listed since it has virtual functions.
    pub kind: String,
    /// What the host calls it: interfaces and whole drives.
    pub names: Vec<String>,
    /// Vendor and device id.
    pub id: (Option<u16>, Option<u16>),
    /// Node, `None` where the firmware gave no affinity.
    pub node: Option<u32>,
    /// Bound driver.
    pub driver: Option<String>,
    /// IOMMU group; `None` without an IOMMU.
    pub group: Option<u32>,
    /// The other functions of that group.
    pub group_members: Vec<GroupMember>,
    /// How its DMA is translated while the host drives it: `identity`, `DMA`, `DMA-FQ`.
    pub dma_domain: Option<String>,
    /// Ways to reset it; `None` where the kernel does not tell.
    pub resets: Option<Vec<String>>,
    /// Its PCI Express link.
    pub link: Option<PciLink>,
    /// For a virtual function: its physical one, and its number there.
    pub virtual_of: Option<(PciAddress, u32)>,
    /// For a physical function: its virtual ones.
    pub virtual_functions: Option<VirtualFunctions>,
    /// The guest that has it.
    pub guest: Option<Owner>,
    /// Why it cannot be given away; empty for one that can, or that a guest has already.
    pub obstacles: Vec<Obstacle>,
}

/// Virtual functions of a physical one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VirtualFunctions {
    /// As many as it can have.
    pub total: u32,
    /// As many as there are.
    pub made: u32,
    /// As many as guests have.
    pub used: u32,
}

impl Assignable {
    /// Whether a guest could be given it now.
    pub fn is_free(&self) -> bool {
        self.guest.is_none() && self.obstacles.is_empty()
    }
}

/// Every function worth giving away, by node (unknown last) and address.
pub fn examine(host: &Host, ledger: &Ledger) -> Vec<Assignable> {
    let groups = groups(host);
    // Since Linux 5.15 the file is there where there is a way: another function that has it shows which kernel this is.
    let resets_told = host.pci_devices.iter().any(|device| device.resets.is_some());
    let wanted = host.pci_devices.iter().filter(|device| device.kind().is_some() || device.sriov.is_some());
    let mut found: Vec<Assignable> =
        wanted.map(|device| examine_one(host, ledger, &groups, resets_told, device)).collect();
    found.sort_by_key(|one| (one.node.is_none(), one.node, one.function));
    found
}

/// What the host itself does with a function: the reasons that hold whatever the IOMMU says.
pub fn uses(host: &Host, ledger: &Ledger, function: PciAddress) -> Vec<Obstacle> {
    host.pci_devices
        .iter()
        .find(|device| device.address == function)
        .map_or_else(Vec::new, |device| uses::of(host, ledger, device))
}

/// The guest that has a function.
pub fn guest_of(ledger: &Ledger, function: PciAddress) -> Option<&Owner> {
    let held = |device: &&crate::ledger::DeviceUse| device.function == Some(function) && device.by.contains("vfio");
    ledger.devices.iter().find(held)?.owner.as_ref()
}

fn groups(host: &Host) -> BTreeMap<u32, Vec<&PciDevice>> {
    let mut groups: BTreeMap<u32, Vec<&PciDevice>> = BTreeMap::new();
    for device in &host.pci_devices {
        if let Some(group) = device.iommu_group {
            groups.entry(group).or_default().push(device);
        }
    }
    groups
}

fn examine_one(
    host: &Host,
    ledger: &Ledger,
    groups: &BTreeMap<u32, Vec<&PciDevice>>,
    resets_told: bool,
    device: &PciDevice,
) -> Assignable {
    let members = device.iommu_group.and_then(|group| groups.get(&group)).into_iter().flatten();
    let others: Vec<&PciDevice> = members.filter(|other| other.address != device.address).copied().collect();
    let member = |other: &&PciDevice| GroupMember { function: other.address, driver: other.driver.clone() };
    let guest = guest_of(ledger, device.address).cloned();
    let mut obstacles = Vec::new();
    if guest.is_none() {
        match device.iommu_group {
            None => obstacles.push(Obstacle::NoIommu),
            Some(group) => {
                let with: Vec<GroupMember> = others.iter().filter(|other| stays_with_host(other)).map(member).collect();
                if !with.is_empty() {
                    obstacles.push(Obstacle::GroupShared { group, with });
                }
            }
        }
        obstacles.extend(uses::of(host, ledger, device));
        if resets_told && device.resets.as_ref().is_none_or(Vec::is_empty) {
            obstacles.push(Obstacle::NoReset);
        }
    }
    let own = |state: &crate::SriovState| VirtualFunctions {
        total: state.total_vfs,
        made: state.vfs,
        used: state.functions.iter().filter(|function| guest_of(ledger, **function).is_some()).count() as u32,
    };
    Assignable {
        function: device.address,
        kind: device.kind().unwrap_or("other").to_owned(),
        names: names(host, device.address),
        id: (device.vendor, device.device),
        node: device.node,
        driver: device.driver.clone(),
        group: device.iommu_group,
        group_members: others.iter().map(member).collect(),
        dma_domain: device.dma_domain.clone(),
        resets: device.resets.clone().or_else(|| resets_told.then(Vec::new)),
        link: device.link,
        virtual_of: device.physical_function.and_then(|physical| number(host, physical, device.address)),
        virtual_functions: device.sriov.as_ref().map(own),
        guest,
        obstacles,
    }
}

/// Whether the host drives a function, so that no other of its group can be given away. VFIO lets bridges stay in a group,
/// functions without a driver, with its own, or parked (drivers/vfio/group.c, `vfio_dev_viable` before Linux 6.0; DMA
/// ownership since).
pub fn stays_with_host(other: &PciDevice) -> bool {
    let driver = other.driver.as_deref().unwrap_or_default();
    !(other.is_bridge() || driver.is_empty() || driver.contains("vfio") || driver == "pci-stub")
}

fn number(host: &Host, physical: PciAddress, function: PciAddress) -> Option<(PciAddress, u32)> {
    let card = host.pci_devices.iter().find(|device| device.address == physical)?;
    let place = card.sriov.as_ref()?.functions.iter().position(|own| *own == function)?;
    Some((physical, place as u32))
}

#[cfg(test)]
mod tests;
