//! PCI functions, block devices, network interfaces.

use nearmetal_units::{Bytes, NodeSet};

use super::table::Table;
use super::{or_dash, shown};
use crate::{BlockDevice, Host, PciDevice, PciLink};

pub(super) fn pci(host: &Host) -> String {
    let columns = ["address", "kind", "vendor:device", ">node", "driver", ">IOMMU group", "VFs", "link"];
    let mut table = Table::new("PCI FUNCTIONS", &columns);
    let mut left_out = 0;
    for device in host.pci_devices.iter().filter(|device| device.physical_function.is_none()) {
        let kind = if device.class.is_some() { device.kind() } else { Some("?") };
        // A device with virtual functions is of interest whatever it is.
        let Some(kind) = kind.or_else(|| device.sriov.as_ref().map(|_| "other")) else {
            left_out += 1;
            continue;
        };
        let vfs = device.sriov.as_ref().map(|state| format!("{} of {}", state.vfs, state.total_vfs));
        let mut cells = row(device, device.address.to_string(), kind, or_dash(device.iommu_group), or_dash(vfs));
        cells.push(or_dash(device.link.as_ref().map(link)));
        table.row(cells);
        virtual_functions(host, device, &mut table);
    }
    let mut text = table.render();
    if !text.is_empty() && left_out > 0 {
        text.push_str(&format!("not shown, since guests are not given them (bridges and the like): {left_out}\n"));
    }
    text
}

/// `8 GT/s x8`, and what it is able to where that is more.
pub(crate) fn link(link: &PciLink) -> String {
    let one = |speed: Option<u32>, width: Option<u32>| {
        let speed = speed.map(|speed| f64::from(speed) / 1000.0);
        format!("{} GT/s x{}", shown(speed), shown(width))
    };
    let now = one(link.speed, link.width);
    let less = link.speed < link.max_speed || link.width < link.max_width;
    if less { format!("{now}, able to {}", one(link.max_speed, link.max_width)) } else { now }
}

fn row(device: &PciDevice, name: String, kind: &str, group: String, vfs: String) -> Vec<String> {
    let hex = |id: Option<u16>| id.map_or_else(|| "?".to_owned(), |id| format!("{id:04x}"));
    let identity = format!("{}:{}", hex(device.vendor), hex(device.device));
    vec![name, kind.to_owned(), identity, shown(device.node), or_dash(device.driver.as_ref()), group, vfs]
}

/// One row for each run of virtual functions that are alike but for their IOMMU group.
fn virtual_functions(host: &Host, physical: &PciDevice, table: &mut Table) {
    let own: Vec<&PciDevice> =
        host.pci_devices.iter().filter(|device| device.physical_function == Some(physical.address)).collect();
    let order: Vec<usize> = match &physical.sriov {
        Some(state) => own
            .iter()
            .map(|device| state.functions.iter().position(|address| *address == device.address).unwrap_or(usize::MAX))
            .collect(),
        None => (0..own.len()).collect(),
    };
    let mut numbered: Vec<(usize, &PciDevice)> = order.into_iter().zip(own).collect();
    numbered.sort_by_key(|(number, device)| (*number, device.address));
    let alike = |left: &PciDevice, right: &PciDevice| {
        (left.class, left.vendor, left.device, left.node, &left.driver)
            == (right.class, right.vendor, right.device, right.node, &right.driver)
    };
    for run in numbered.chunk_by(|left, right| alike(left.1, right.1)) {
        let (first, last) = (run[0].0, run[run.len() - 1].0);
        let name = if first == last { format!("  VF {first}") } else { format!("  VF {first}-{last}") };
        // Groups are numbers like nodes: the same ranges suit them.
        let groups: NodeSet = run.iter().filter_map(|(_, device)| device.iommu_group).collect();
        let groups = if groups.is_empty() { "-".to_owned() } else { groups.to_string() };
        let kind = run[0].1.kind().unwrap_or("?");
        let mut cells = row(run[0].1, name, kind, groups, "-".to_owned());
        cells.push("-".to_owned());
        table.row(cells);
    }
}

pub(super) fn block(host: &Host) -> String {
    let columns = [
        "name",
        ">size",
        "medium",
        ">queues",
        "scheduler",
        "logical/physical block",
        "PCI function",
        ">node",
        "holders",
    ];
    let mut table = Table::new("BLOCK DEVICES", &columns);
    let mut left_out = 0;
    for device in host.block_devices.iter().filter(|device| device.partition_of.is_none()) {
        // Unused loop and RAM devices.
        if device.pci.is_none() && device.size.is_none_or(|size| size == Bytes::ZERO) {
            left_out += 1;
            continue;
        }
        table.row(block_row(device, device.name.clone()));
        for part in host.block_devices.iter().filter(|part| part.partition_of.as_ref() == Some(&device.name)) {
            let mut cells = vec![format!("  {}", part.name), shown(part.size)];
            cells.extend(["", "", "", "", "", ""].map(str::to_owned));
            cells.push(holders(part));
            table.row(cells);
        }
    }
    let mut text = table.render();
    if !text.is_empty() && left_out > 0 {
        text.push_str(&format!("not shown, since they are empty: {left_out}\n"));
    }
    text
}

fn block_row(device: &BlockDevice, name: String) -> Vec<String> {
    let medium = device.rotational.map(|rotational| if rotational { "disk" } else { "flash" });
    let pci = match device.paths.len() {
        0 | 1 => or_dash(device.pci),
        paths => format!("{} (+{} paths)", shown(device.pci), paths - 1),
    };
    // A device on no function has no node to be unknown.
    let node = if device.pci.is_some() { shown(device.node) } else { "-".to_owned() };
    vec![
        name,
        shown(device.size),
        level(device).unwrap_or_else(|| shown(medium)),
        or_dash(device.queues),
        shown(device.scheduler.as_ref()),
        format!("{}/{}", shown(device.logical_block), shown(device.physical_block)),
        pci,
        node,
        holders(device),
    ]
}

/// What a stacked device is: a volume of LVM, an array.
fn level(device: &BlockDevice) -> Option<String> {
    device.raid_level.clone().or_else(|| device.mapping.clone())
}

fn holders(device: &BlockDevice) -> String {
    if device.holders.is_empty() { "-".to_owned() } else { device.holders.join(" ") }
}

pub(super) fn network(host: &Host) -> String {
    let columns = ["name", "state", ">Mbit/s", "driver", "queues receive/transmit", "PCI function", ">node", "part of"];
    let mut table = Table::new("NETWORK INTERFACES", &columns);
    for interface in &host.network_interfaces {
        let node = if interface.pci.is_some() { shown(interface.node) } else { "-".to_owned() };
        table.row(vec![
            interface.name.clone(),
            shown(interface.state.as_ref()),
            or_dash(interface.speed),
            or_dash(interface.driver.as_ref().or(interface.kind.as_ref())),
            format!("{}/{}", shown(interface.receive_queues), shown(interface.transmit_queues)),
            or_dash(interface.pci),
            node,
            or_dash(interface.master.as_ref()),
        ]);
    }
    let functions = network_functions(host);
    if functions.is_empty() { table.render() } else { format!("{}\n{functions}", table.render()) }
}

/// What network cards say of their virtual functions.
fn network_functions(host: &Host) -> String {
    let columns = ["card", ">VF", "PCI function", "MAC address", ">VLAN", "trusted"];
    let mut table = Table::new("VIRTUAL FUNCTIONS OF NETWORK CARDS", &columns);
    for (card, row) in
        host.network_interfaces.iter().flat_map(|card| card.virtual_functions.iter().map(move |row| (card, row)))
    {
        let trusted = row.trusted.map(|trusted| if trusted { "yes" } else { "no" });
        table.row(vec![
            card.name.clone(),
            row.number.to_string(),
            or_dash(row.function),
            shown(row.mac.as_ref()),
            shown(row.vlan),
            shown(trusted),
        ]);
    }
    table.render()
}
