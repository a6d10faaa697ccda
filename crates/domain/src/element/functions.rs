//! PCI functions handed through: `<hostdev type='pci'>`, and `<interface type='hostdev'>` for virtual functions of a NIC.

use std::collections::BTreeSet;

use nearmetal_units::{MacAddress, PciAddress, VlanId};
use roxmltree::{Document, Node};
use serde::{Deserialize, Serialize};

use super::pci_layout::{
    self, Bus, GuestAddress, address_fragment, alias_fragment, function_alias, guest_address, is_ours,
};
use super::{boot, cells, hostdev};
use crate::document::DomainXml;
use crate::edit::{Edits, is_plain};
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::{order, tree};

/// A function handed through, as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionFacts {
    /// The host's address of it.
    pub address: PciAddress,
    /// Whether it is an `<interface>`, whose address and VLAN libvirt sets.
    pub interface: bool,
    /// Whether libvirt takes it from its driver and gives it back.
    pub managed: bool,
    /// Hardware address of an interface.
    pub mac: Option<String>,
    /// VLANs of an interface.
    pub vlans: Vec<u32>,
    /// Guest cell it is shown on, if any.
    pub cell: Option<u32>,
}

/// A function to be handed through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The host's address of it.
    pub address: PciAddress,
    /// For a virtual function of a NIC, what libvirt sets of it through the physical one.
    pub network: Option<NetworkFunction>,
    /// Guest cell it is shown on; `None` leaves its address to libvirt.
    pub cell: Option<u32>,
}

/// What libvirt sets of a NIC's virtual function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetworkFunction {
    /// Hardware address; `None` keeps what is written, and libvirt makes one up where nothing is.
    pub mac: Option<MacAddress>,
    /// VLAN; `None` keeps what somebody else wrote.
    pub vlan: Option<VlanId>,
}

/// A device that hands a function through.
struct Passed<'a, 'i> {
    node: Node<'a, 'i>,
    address: PciAddress,
    interface: bool,
}

fn passed<'a, 'i>(document: &'a Document<'i>) -> Result<Vec<Passed<'a, 'i>>, DomainError> {
    let mut all = Vec::new();
    for (element, kind) in [("hostdev", "pci"), ("interface", "hostdev")] {
        for node in tree::find_all(document, &["devices", element]) {
            if node.attribute("type") == Some(kind) {
                let address = hostdev::source_address(node)?;
                all.extend(address.map(|address| Passed { node, address, interface: element == "interface" }));
            }
        }
    }
    Ok(all)
}

pub(crate) fn read(document: &Document<'_>) -> Result<Vec<FunctionFacts>, DomainError> {
    let controllers = pci_layout::controllers(document)?;
    let read_one = |passed: Passed<'_, '_>| {
        Ok(FunctionFacts {
            address: passed.address,
            interface: passed.interface,
            managed: passed.node.attribute("managed") == Some("yes"),
            mac: tree::child(passed.node, "mac").and_then(|mac| tree::attribute(mac, "address")),
            vlans: vlans(passed.node)?,
            cell: pci_layout::cell_of(&controllers, passed.node)?,
        })
    };
    passed(document)?.into_iter().map(read_one).collect()
}

fn vlans(device: Node<'_, '_>) -> Result<Vec<u32>, DomainError> {
    let tags = tree::children(device, "vlan").flat_map(|vlan| tree::children(vlan, "tag"));
    tags.filter_map(|tag| tree::number(tag, "id").transpose()).collect()
}

impl DomainXml {
    /// The element that hands this function through, as it is written: what libvirt wants to unplug it and to plug it in
    /// again at the same place.
    ///
    /// # Errors
    /// An address that is none.
    pub fn function_element(&self, function: PciAddress) -> Result<Option<String>, DomainError> {
        self.with_tree(|document| {
            let found = passed(document)?.into_iter().find(|passed| passed.address == function);
            Ok(found.and_then(|passed| document.input_text().get(passed.node.range()).map(str::to_owned)))
        })
    }

    /// Hands these functions through, managed by libvirt, and takes those away that nearmetal put there before and that
    /// are not among them. Functions somebody else put there stay.
    ///
    /// One with a cell gets a root port of its own on an expander bus of that cell, so that the guest sees on which of its
    /// nodes it is. That takes machine type q35; on others the address is libvirt's choice, and the cell is not shown.
    ///
    /// # Errors
    /// No `<devices>`, the same function twice, a cell the guest does not have, or no room for more PCI buses.
    pub fn set_functions(&mut self, wanted: &[Function]) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            let root = document.root_element();
            check(document, wanted)?;
            let missing = || DomainError::Missing { position: tree::position(root), what: "<devices>".to_owned() };
            let devices = match tree::child(root, "devices") {
                Some(devices) => devices,
                None if wanted.is_empty() => return Ok(()),
                None => return Err(missing()),
            };
            let shown: Vec<(u32, PciAddress)> = if boot::read(document).is_q35() {
                wanted.iter().filter_map(|function| Some((function.cell?, function.address))).collect()
            } else {
                Vec::new()
            };
            let controllers = pci_layout::controllers(document)?;
            let mut gone_buses = BTreeSet::new();
            let buses = match pci_layout::kept(&controllers, &shown) {
                Some(buses) => buses,
                None => {
                    let buses = pci_layout::laid_out(document, &controllers, &shown)?;
                    for own in controllers.iter().filter(|controller| is_ours(controller.node)) {
                        edits.remove(own.node);
                        gone_buses.extend(own.index);
                    }
                    let new: Vec<Fragment> = buses.iter().flat_map(pci_layout::fragments).collect();
                    insert_all(edits, devices, "controller", &new);
                    buses
                }
            };
            let handled = place(document, edits, devices, wanted, &buses)?;
            // Others that stood on a bus which is gone are given a place by libvirt.
            for device in devices.children().filter(|node| is_plain(*node) && !is_ours(*node)) {
                let lost = guest_address(device)?.is_some_and(|address| gone_buses.contains(&address.bus));
                if lost && !handled.contains(&device) {
                    tree::children(device, "address").for_each(|address| edits.remove(address));
                }
            }
            Ok(())
        })
    }
}

fn check(document: &Document<'_>, wanted: &[Function]) -> Result<(), DomainError> {
    let cells = cells::read(document)?.len();
    for (number, function) in wanted.iter().enumerate() {
        let wrong = |rule| Err(DomainError::argument("a PCI function", &function.address.to_string(), rule));
        if wanted[..number].iter().any(|other| other.address == function.address) {
            return wrong("it is handed through once");
        }
        if function.cell.is_some_and(|cell| cell as usize >= cells) {
            return wrong("the guest cell it is to be shown on is not in the definition");
        }
    }
    Ok(())
}

/// Writes the devices themselves; returns those that were kept or removed.
fn place<'a, 'i>(
    document: &'a Document<'i>,
    edits: &mut Edits<'_>,
    devices: Node<'a, 'i>,
    wanted: &[Function],
    buses: &[Bus],
) -> Result<Vec<Node<'a, 'i>>, DomainError> {
    let (mut handled, mut hostdevs, mut interfaces) = (Vec::new(), Vec::new(), Vec::new());
    let mut present = passed(document)?;
    for function in wanted {
        let port = buses.iter().flat_map(|bus| &bus.ports).find(|port| port.function == function.address);
        let address = port.map(|port| GuestAddress { bus: port.index, slot: 0, function: 0 });
        let own = |passed: &Passed<'_, '_>| {
            passed.address == function.address && passed.interface == function.network.is_some()
        };
        if let Some(at) = present.iter().position(own) {
            let kept = present.swap_remove(at);
            change(edits, &kept, function, address)?;
            handled.push(kept.node);
        } else if function.network.is_some() {
            interfaces.push(fragment(function, address));
        } else {
            hostdevs.push(fragment(function, address));
        }
    }
    for passed in present {
        // The same function in another form would be handed through twice.
        if is_ours(passed.node) || wanted.iter().any(|function| function.address == passed.address) {
            edits.remove(passed.node);
            handled.push(passed.node);
        }
    }
    insert_all(edits, devices, "interface", &interfaces);
    insert_all(edits, devices, "hostdev", &hostdevs);
    Ok(handled)
}

fn insert_all(edits: &mut Edits<'_>, devices: Node<'_, '_>, name: &str, new: &[Fragment]) {
    edits.insert_all_behind(devices, order::before("devices", name).unwrap_or_default(), new);
}

/// Brings a device that is there to what is wanted.
fn change(
    edits: &mut Edits<'_>,
    passed: &Passed<'_, '_>,
    function: &Function,
    address: Option<GuestAddress>,
) -> Result<(), DomainError> {
    let node = passed.node;
    let name = if passed.interface { "interface" } else { "hostdev" };
    let insert = |edits: &mut Edits<'_>, child: &str, fragment: &Fragment| {
        edits.insert_behind(node, order::before(name, child).unwrap_or_default(), fragment);
    };
    edits.set_attribute(node, "managed", "yes");
    if let Some(network) = function.network {
        let mac = tree::child(node, "mac");
        let written = mac.and_then(|mac| mac.attribute("address")).and_then(|text| text.parse::<MacAddress>().ok());
        match (network.mac, mac) {
            (Some(wanted), _) if written == Some(wanted) => {}
            (Some(wanted), Some(mac)) => edits.set_attribute(mac, "address", &wanted.to_string()),
            (Some(wanted), None) => insert(edits, "mac", &mac_fragment(wanted)),
            (None, _) => {}
        }
        let wanted: Vec<u32> = network.vlan.map(|vlan| u32::from(u16::from(vlan))).into_iter().collect();
        if (!wanted.is_empty() || is_ours(node)) && vlans(node)? != wanted {
            tree::children(node, "vlan").for_each(|vlan| edits.remove(vlan));
            if let Some(vlan) = network.vlan {
                insert(edits, "vlan", &vlan_fragment(vlan));
            }
        }
    }
    if let Some(wanted) = address {
        if guest_address(node)? != Some(wanted) {
            // With everything in it: `multifunction`, or a place that is not PCI.
            tree::children(node, "address").for_each(|address| edits.remove(address));
            insert(edits, "address", &address_fragment(wanted));
        }
    } else if on_our_bus(node) {
        // That bus is gone, or another function's.
        tree::children(node, "address").for_each(|address| edits.remove(address));
    }
    Ok(())
}

/// Whether the bus a device stands on is one of nearmetal's.
fn on_our_bus(node: Node<'_, '_>) -> bool {
    let Ok(Some(address)) = guest_address(node) else { return false };
    let controllers = pci_layout::controllers(node.document()).unwrap_or_default();
    controllers.iter().any(|controller| controller.index == Some(address.bus) && is_ours(controller.node))
}

fn fragment(function: &Function, address: Option<GuestAddress>) -> Fragment {
    let own = function.address;
    // libvirt prints the kind of address in an interface, and not in a hostdev, which has said it.
    let kind = function.network.map(|_| "pci");
    let place = kind.into_iter().fold(Fragment::new("address"), |place, kind| place.attribute("type", kind));
    let place = place
        .attribute("domain", format!("{:#06x}", own.domain))
        .attribute("bus", format!("{:#04x}", own.bus))
        .attribute("slot", format!("{:#04x}", own.device))
        .attribute("function", format!("{:#x}", own.function));
    let device = match function.network {
        Some(network) => Fragment::new("interface")
            .attribute("type", "hostdev")
            .attribute("managed", "yes")
            .children(network.mac.map(mac_fragment))
            .child(Fragment::new("source").child(place))
            .children(network.vlan.map(vlan_fragment)),
        None => Fragment::new("hostdev")
            .attribute("mode", "subsystem")
            .attribute("type", "pci")
            .attribute("managed", "yes")
            .child(Fragment::new("source").child(place)),
    };
    device.child(alias_fragment(function_alias(own))).children(address.map(address_fragment))
}

fn mac_fragment(mac: MacAddress) -> Fragment {
    Fragment::new("mac").attribute("address", mac)
}

fn vlan_fragment(vlan: VlanId) -> Fragment {
    Fragment::new("vlan").child(Fragment::new("tag").attribute("id", vlan))
}
