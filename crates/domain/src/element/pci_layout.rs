//! `<controller type='pci'>`: where nearmetal's own PCI buses are in the guest, one for each cell that has devices.
//!
//! A `pcie-expander-bus` (QEMU's pxb-pcie) is a root bus the guest's firmware shows on a NUMA node; a root port on it
//! carries one function. libvirt takes them on q35 only, the expander on `pcie.0` and nothing but ports on it
//! (formatdomain, "Controllers"). Ours are known by their aliases, which libvirt keeps where they begin with `ua-`.

use nearmetal_units::PciAddress;
use roxmltree::{Document, Node};

use crate::edit::is_plain;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::tree;

/// What the aliases of everything nearmetal adds begin with.
const OURS: &str = "ua-nearmetal-";
/// PCI numbers its buses in a byte, and libvirt takes expander buses from 1 to 254.
const LAST_BUS: u32 = 255;
/// Slots of `pcie.0` from the last one down: libvirt fills from the first, and puts sound, USB and the chip set's own
/// devices behind this one (qemuDomainPCIAddressSetCreate and qemuDomainValidateDevicePCISlotsQ35).
const LAST_SLOT: u32 = 0x19;

/// A place in the guest's PCI hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestAddress {
    pub(crate) bus: u32,
    pub(crate) slot: u32,
    pub(crate) function: u32,
}

/// A PCI controller as written.
pub(crate) struct Controller<'a, 'i> {
    pub(crate) node: Node<'a, 'i>,
    pub(crate) index: Option<u32>,
    model: String,
    /// First bus number and guest cell of an expander bus.
    bus_number: Option<u32>,
    pub(crate) cell: Option<u32>,
    pub(crate) address: Option<GuestAddress>,
}

/// An expander bus of ours and its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bus {
    cell: u32,
    index: u32,
    number: u32,
    slot: u32,
    pub(crate) ports: Vec<Port>,
}

/// A root port and the function behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    /// The controller's index, which is the bus the function stands on.
    pub(crate) index: u32,
    pub(crate) function: PciAddress,
}

/// The alias of a function that nearmetal added.
pub(crate) fn function_alias(function: PciAddress) -> String {
    format!("{OURS}{}", plain(function))
}

fn bus_alias(cell: u32) -> String {
    format!("{OURS}cell{cell}")
}

fn port_alias(function: PciAddress) -> String {
    format!("{OURS}port-{}", plain(function))
}

/// Aliases have neither colons nor dots.
fn plain(function: PciAddress) -> String {
    function.to_string().replace([':', '.'], "-")
}

/// Whether nearmetal added this element.
pub(crate) fn is_ours(node: Node<'_, '_>) -> bool {
    alias(node).is_some_and(|name| name.starts_with(OURS))
}

fn alias<'a>(node: Node<'a, '_>) -> Option<&'a str> {
    tree::child(node, "alias").and_then(|alias| alias.attribute("name"))
}

/// The guest's address of a device, `None` where libvirt still has to choose one.
pub(crate) fn guest_address(device: Node<'_, '_>) -> Result<Option<GuestAddress>, DomainError> {
    let Some(address) = tree::child(device, "address").filter(|node| node.attribute("type") == Some("pci")) else {
        return Ok(None);
    };
    let part = |name: &str| Ok::<u32, DomainError>(tree::number(address, name)?.unwrap_or(0));
    Ok(Some(GuestAddress { bus: part("bus")?, slot: part("slot")?, function: part("function")? }))
}

/// All PCI controllers.
pub(crate) fn controllers<'a, 'i>(document: &'a Document<'i>) -> Result<Vec<Controller<'a, 'i>>, DomainError> {
    let nodes = tree::find_all(document, &["devices", "controller"]).into_iter();
    nodes
        .filter(|node| node.attribute("type") == Some("pci"))
        .map(|node| {
            let target = tree::child(node, "target");
            let cell = target.and_then(|target| tree::child(target, "node"));
            Ok(Controller {
                node,
                index: tree::number(node, "index")?,
                model: tree::attribute(node, "model").unwrap_or_default(),
                bus_number: target.map_or(Ok(None), |target| tree::number(target, "busNr"))?,
                cell: cell.map(|cell| tree::whole_number(cell, "<node>", &tree::text(cell))).transpose()?,
                address: guest_address(node)?,
            })
        })
        .collect()
}

/// The guest cell a device is shown on: that of the expander bus above it.
pub(crate) fn cell_of(controllers: &[Controller<'_, '_>], device: Node<'_, '_>) -> Result<Option<u32>, DomainError> {
    let mut bus = guest_address(device)?.map(|address| address.bus);
    // A hierarchy that goes round ends after as many steps as there are controllers.
    for _ in 0..=controllers.len() {
        let above = bus.and_then(|bus| controllers.iter().find(|controller| controller.index == Some(bus)));
        match above {
            Some(controller) if controller.cell.is_some() => return Ok(controller.cell),
            Some(controller) => bus = controller.address.map(|address| address.bus),
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Our buses as they are, if they are exactly what these functions (with their cells) need.
pub(crate) fn kept(controllers: &[Controller<'_, '_>], wanted: &[(u32, PciAddress)]) -> Option<Vec<Bus>> {
    let ours: Vec<_> = controllers.iter().filter(|controller| is_ours(controller.node)).collect();
    let mut buses = Vec::new();
    for (cell, functions) in by_cell(wanted) {
        let named = |name: String| ours.iter().find(move |own| alias(own.node) == Some(name.as_str()));
        let bus = named(bus_alias(cell)).filter(|own| own.cell == Some(cell) && own.model == "pcie-expander-bus")?;
        let (index, number, slot) = (bus.index?, bus.bus_number?, bus.address?.slot);
        let ports = functions.iter().map(|function| {
            let port = named(port_alias(*function)).filter(|own| own.model == "pcie-root-port")?;
            let above = port.address.filter(|address| address.bus == index);
            above.and(port.index).map(|index| Port { index, function: *function })
        });
        buses.push(Bus { cell, index, number, slot, ports: ports.collect::<Option<Vec<_>>>()? });
    }
    let needed: usize = buses.iter().map(|bus| 1 + bus.ports.len()).sum();
    (needed == ours.len() && rooms_are_apart(&buses)).then_some(buses)
}

/// Whether the bus numbers each takes (its own and one a port) are its own.
fn rooms_are_apart(buses: &[Bus]) -> bool {
    let mut rooms: Vec<(u32, u32)> =
        buses.iter().map(|bus| (bus.number, bus.number.saturating_add(bus.ports.len() as u32))).collect();
    rooms.sort_unstable();
    rooms.iter().all(|(_, last)| *last <= LAST_BUS) && rooms.windows(2).all(|pair| pair[0].1 < pair[1].0)
}

/// Lays new buses out, beside everything that is not ours.
pub(crate) fn laid_out(
    document: &Document<'_>,
    controllers: &[Controller<'_, '_>],
    wanted: &[(u32, PciAddress)],
) -> Result<Vec<Bus>, DomainError> {
    let no_room = |what: &str, rule| Err(DomainError::argument("a PCI bus for each cell with devices", what, rule));
    let foreign: Vec<_> = controllers.iter().filter(|controller| !is_ours(controller.node)).collect();
    let mut index = foreign.iter().filter_map(|controller| controller.index).max().unwrap_or(0);
    // Behind its number, an expander bus of somebody else has its ports; below it, the numbers are free.
    let mut above = foreign.iter().filter_map(|controller| controller.bus_number).min().unwrap_or(LAST_BUS + 1);
    let taken = root_slots(document)?;
    let mut slots = (1..=LAST_SLOT).rev().filter(|slot| !taken.contains(slot));
    let mut buses = Vec::new();
    for (cell, functions) in by_cell(wanted) {
        let room = 1 + functions.len() as u32;
        let Some(slot) = slots.next() else {
            return no_room("the root bus pcie.0", "it has no free slot left");
        };
        // Every controller of the main hierarchy is a bus at most; they are numbered from below.
        let number = above.saturating_sub(room);
        if number <= index {
            return no_room("256 bus numbers", "the buses before it leave no room");
        }
        above = number;
        let own = index + 1;
        index += room;
        let ports = functions.into_iter().zip(own + 1..).map(|(function, index)| Port { index, function });
        buses.push(Bus { cell, index: own, number, slot, ports: ports.collect() });
    }
    Ok(buses)
}

/// Cells with their functions, in rising order.
fn by_cell(wanted: &[(u32, PciAddress)]) -> std::collections::BTreeMap<u32, Vec<PciAddress>> {
    let mut cells = std::collections::BTreeMap::<u32, Vec<PciAddress>>::new();
    for (cell, function) in wanted {
        cells.entry(*cell).or_default().push(*function);
    }
    cells
}

/// Slots of `pcie.0` that something else than ours stands in.
fn root_slots(document: &Document<'_>) -> Result<Vec<u32>, DomainError> {
    let mut slots = Vec::new();
    for devices in tree::find_all(document, &["devices"]) {
        for device in devices.children().filter(|node| is_plain(*node) && !is_ours(*node)) {
            slots.extend(guest_address(device)?.filter(|address| address.bus == 0).map(|address| address.slot));
        }
    }
    Ok(slots)
}

/// The controllers of a bus and its ports, as libvirt prints them: chassis and port numbers are those it would give.
pub(crate) fn fragments(bus: &Bus) -> Vec<Fragment> {
    let controller = |index: u32, model: &str| {
        let controller = Fragment::new("controller").attribute("type", "pci").attribute("index", index);
        controller.attribute("model", model.to_owned())
    };
    let node = Fragment::new("node").text(bus.cell);
    let expander = controller(bus.index, "pcie-expander-bus")
        .child(Fragment::new("model").attribute("name", "pxb-pcie"))
        .child(Fragment::new("target").attribute("busNr", bus.number).child(node))
        .child(alias_fragment(bus_alias(bus.cell)))
        .child(address_fragment(GuestAddress { bus: 0, slot: bus.slot, function: 0 }));
    let ports = (0u32..).zip(&bus.ports).map(|(slot, port)| {
        let target = Fragment::new("target").attribute("chassis", port.index);
        controller(port.index, "pcie-root-port")
            .child(Fragment::new("model").attribute("name", "pcie-root-port"))
            .child(target.attribute("port", format!("{:#x}", slot << 3)))
            .child(alias_fragment(port_alias(port.function)))
            .child(address_fragment(GuestAddress { bus: bus.index, slot, function: 0 }))
    });
    std::iter::once(expander).chain(ports).collect()
}

/// `<alias>`.
pub(crate) fn alias_fragment(name: String) -> Fragment {
    Fragment::new("alias").attribute("name", name)
}

/// `<address type='pci'>`.
pub(crate) fn address_fragment(address: GuestAddress) -> Fragment {
    Fragment::new("address")
        .attribute("type", "pci")
        .attribute("domain", "0x0000")
        .attribute("bus", format!("{:#04x}", address.bus))
        .attribute("slot", format!("{:#04x}", address.slot))
        .attribute("function", format!("{:#x}", address.function))
}
