//! `<hostdev>` and the other ways to hand a PCI function through.

use nearmetal_units::PciAddress;
use roxmltree::{Document, Node};

use crate::error::DomainError;
use crate::tree;

/// PCI functions handed through: `<hostdev type='pci'>`, `<interface type='hostdev'>` and `<disk type='nvme'>`.
pub(crate) fn read(document: &Document<'_>) -> Result<Vec<PciAddress>, DomainError> {
    let mut addresses = Vec::new();
    for devices in tree::find_all(document, &["devices"]) {
        for device in devices.children().filter(|node| crate::edit::is_plain(*node)) {
            let through = match device.tag_name().name() {
                "hostdev" | "disk" | "interface" => match device.attribute("type") {
                    Some("pci") => device.tag_name().name() == "hostdev",
                    Some("hostdev") => device.tag_name().name() == "interface",
                    Some("nvme") => device.tag_name().name() == "disk",
                    _ => false,
                },
                _ => false,
            };
            if through {
                addresses.extend(source_address(device)?);
            }
        }
    }
    Ok(addresses)
}

/// Functions that ask for KVM's own assignment (`<driver name='kvm'/>`), which kernels since 4.12 do not have.
pub(crate) fn legacy(document: &Document<'_>) -> Result<Vec<PciAddress>, DomainError> {
    let mut addresses = Vec::new();
    for element in ["hostdev", "interface"] {
        for device in tree::find_all(document, &["devices", element]) {
            if tree::child(device, "driver").is_some_and(|driver| driver.attribute("name") == Some("kvm")) {
                addresses.extend(source_address(device)?);
            }
        }
    }
    Ok(addresses)
}

/// The PCI address in `<source>`.
pub(crate) fn source_address(device: Node<'_, '_>) -> Result<Option<PciAddress>, DomainError> {
    let Some(source) = tree::child(device, "source") else { return Ok(None) };
    let Some(address) = tree::child(source, "address") else { return Ok(None) };
    // A virtual function's USB-like address (type='usb') has no bus number of PCI.
    if address.attribute("type").is_some_and(|kind| kind != "pci") {
        return Ok(None);
    }
    let part = |name: &str, limit: u32| {
        let value = tree::number::<u32>(address, name)?.unwrap_or(0);
        if value > limit {
            return Err(tree::bad_value(
                address,
                &format!("address/@{name}"),
                &value.to_string(),
                format!("at most {limit}"),
            ));
        }
        Ok(value)
    };
    Ok(Some(PciAddress {
        domain: part("domain", u32::MAX)?,
        bus: part("bus", 0xff)? as u8,
        device: part("slot", 0x1f)? as u8,
        function: part("function", 7)? as u8,
    }))
}
