//! The node a guest's devices want it on.

use std::collections::BTreeMap;

use nearmetal_host::Host;

use crate::request::GuestRequest;

/// A node, and the devices that want it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) node: u32,
    /// What hangs there: `PCI function 0000:3b:00.0`, `nvme0n1`, `eth0`.
    pub(crate) devices: Vec<String>,
    /// Devices of the same kind on other nodes, as (name, node).
    pub(crate) elsewhere: Vec<(String, u32)>,
    /// Whether the devices are handed through: those come first in a plan of several guests.
    pub(crate) passthrough: bool,
}

/// The node next to the guest's devices: of those handed through if there are any, else of its disks, else of its
/// network interfaces. Devices whose node the firmware does not tell have no say.
pub(crate) fn of(host: &Host, guest: &GuestRequest) -> Option<Anchor> {
    let passthrough = guest.passthrough.iter().filter_map(|address| {
        let node = host.pci_devices.iter().find(|device| device.address == *address)?.node?;
        Some((format!("PCI function {address}"), node))
    });
    let disks = guest.disks.iter().filter(|disk| !disk.is_read_only).filter_map(|disk| {
        let name = disk.block_device.as_deref()?;
        Some((name.to_owned(), block_device_node(host, name)?))
    });
    let networks = guest.networks.iter().filter_map(|network| {
        let name = network.host_interface.as_deref()?;
        Some((name.to_owned(), interface_node(host, name)?))
    });
    vote(passthrough.collect(), true)
        .or_else(|| vote(disks.collect(), false))
        .or_else(|| vote(networks.collect(), false))
}

/// The node most of the devices are on; the lowest of equals.
fn vote(devices: Vec<(String, u32)>, passthrough: bool) -> Option<Anchor> {
    let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
    for (_, node) in &devices {
        *votes.entry(*node).or_default() += 1;
    }
    let (node, _) = votes.into_iter().max_by_key(|(node, count)| (*count, std::cmp::Reverse(*node)))?;
    let (here, elsewhere): (Vec<_>, Vec<_>) = devices.into_iter().partition(|(_, other)| *other == node);
    Some(Anchor { node, devices: here.into_iter().map(|(name, _)| name).collect(), elsewhere, passthrough })
}

/// The node of a block device or, for a partition, of the device it is on.
fn block_device_node(host: &Host, name: &str) -> Option<u32> {
    let device = host.block_device(name)?;
    let whole = || host.block_device(device.partition_of.as_deref()?)?.node;
    device.node.or_else(whole)
}

/// The node of an interface or, for a bridge or bond, of the first member that has one.
fn interface_node(host: &Host, name: &str) -> Option<u32> {
    let own = host.network_interfaces.iter().find(|interface| interface.name == name).and_then(|found| found.node);
    let member = || {
        let mut members = host.network_interfaces.iter().filter(|other| other.master.as_deref() == Some(name));
        members.find_map(|member| member.node)
    };
    own.or_else(member)
}
