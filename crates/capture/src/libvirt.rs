//! A host as libvirt describes it, for those who have no shell there: capabilities and node devices as files of /sys.

use nearmetal_host::HostFs;
use nearmetal_units::{Bytes, CpuSet, PciAddress};

use crate::CaptureError;
use crate::sysfs::{Cache, Description, Node, Pci, Pu};
use crate::xml::{self, Element};

/// What libvirt does not say of a host, in words for the user.
const UNKNOWN: &str = "free memory and hugepages in use, drives' schedulers and queues, settings of the kernel, \
                       interrupts, what runs there and where its pages are";

/// A host by libvirt's word.
#[derive(Debug)]
pub struct LibvirtHost {
    /// Its files; partial.
    pub fs: HostFs,
    /// What libvirt does not say, in one sentence's worth of words.
    pub unknown: &'static str,
}

/// Makes a host of a capabilities document (`virsh capabilities`) and node devices (`virsh nodedev-dumpxml`).
///
/// # Errors
/// XML that is not understood; `name` says where it came from.
pub fn from_libvirt(name: &str, capabilities: &str, devices: &[String]) -> Result<LibvirtHost, CaptureError> {
    let wrong = |problem: String| CaptureError::Xml { name: name.to_owned(), position: 0, problem };
    let root = xml::parse(name, capabilities.as_bytes())?;
    let host = root.child("host").filter(|_| root.name == "capabilities");
    let host = host.ok_or_else(|| wrong("expected `capabilities` with a `host`".to_owned()))?;
    let mut description = Description::default();
    processors(host, &mut description).map_err(wrong)?;
    let mut parsed = Vec::new();
    for device in devices {
        parsed.push(xml::parse(name, device.as_bytes())?);
    }
    add_devices(&parsed, &mut description).map_err(wrong)?;
    if let Some(model) = host.at(&["cpu", "model"]) {
        description
            .texts
            .push(("/proc/cpuinfo".to_owned(), format!("model name\t: {} (libvirt's name)", model.text.trim())));
    }
    let tree = description.files().map_err(|source| CaptureError::Tree { name: name.to_owned(), source })?;
    Ok(LibvirtHost { fs: HostFs::of_partial_tree(tree, name), unknown: UNKNOWN })
}

/// What confines the guests of a libvirt: one of the `secmodel` elements of its capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityModel {
    /// `apparmor` or `selinux`; `dac` for the owners of files and processes.
    pub model: String,
    /// The label of guests' processes that have none of their own; for `dac` it is `+UID:+GID`. AppArmor has none, since each
    /// guest has a profile of its own.
    pub label: Option<String>,
}

/// The security models in a capabilities document, in libvirt's order; none where guests run unconfined.
///
/// # Errors
/// XML that is not understood; `name` says where it came from.
pub fn security_models(name: &str, capabilities: &str) -> Result<Vec<SecurityModel>, CaptureError> {
    let root = xml::parse(name, capabilities.as_bytes())?;
    let models = root.child("host").into_iter().flat_map(|host| host.all("secmodel"));
    let read = |element: &Element| {
        let model = element.text_of("model").map(str::trim).filter(|model| !model.is_empty() && *model != "none")?;
        let label = element.all("baselabel").find(|label| label.attribute("type") == Some("kvm"));
        let label = label.map(|label| label.text.trim().to_owned()).filter(|label| !label.is_empty());
        Some(SecurityModel { model: model.to_owned(), label })
    };
    Ok(models.filter_map(read).collect())
}

/// Cells, their PUs, memory, pages and distances; and the banks of the last-level cache.
fn processors(host: &Element, description: &mut Description) -> Result<(), String> {
    let cells: Vec<_> = host.at(&["topology", "cells"]).into_iter().flat_map(|cells| cells.all("cell")).collect();
    for cell in &cells {
        let index = attribute(cell, "id")?.ok_or("a cell without an id")?;
        let mut node = Node { memory: amount(cell.child("memory"))?, ..Node::default() };
        for pages in cell.all("pages") {
            let size: Option<u64> = pages.attribute("size").and_then(|text| text.parse().ok());
            let count: Option<u64> = pages.text.trim().parse().ok();
            if let (Some(size), Some(count)) = (size.filter(|size| *size > 64), count) {
                node.pools.push((size, count));
            }
        }
        let siblings = cell.child("distances").into_iter().flat_map(|distances| distances.all("sibling"));
        let mut distances = siblings
            .map(|sibling| Ok((attribute(sibling, "id")?, attribute(sibling, "value")?)))
            .collect::<Result<Vec<_>, String>>()?;
        distances.sort_unstable();
        node.distances = distances.into_iter().filter_map(|(_, value)| value).collect();
        for cpu in cell.child("cpus").into_iter().flat_map(|cpus| cpus.all("cpu")) {
            let number = attribute(cpu, "id")?.ok_or("a cpu without an id")?;
            let siblings = cpu.attribute("siblings").map(str::parse::<CpuSet>).transpose();
            let pu = Pu {
                package: attribute(cpu, "socket_id")?,
                die: attribute(cpu, "die_id")?,
                core: attribute(cpu, "core_id")?,
                siblings: siblings.map_err(|error| error.to_string())?.filter(|set| set.contains(number)),
                caches: Vec::new(),
            };
            node.cpus.insert(number);
            description.pus.insert(number, pu);
        }
        description.nodes.insert(index, node);
    }
    if description.pus.is_empty() {
        return Err("libvirt lists no PU".to_owned());
    }
    for bank in host.child("cache").into_iter().flat_map(|cache| cache.all("bank")) {
        let Some(level) = attribute(bank, "level")? else { continue };
        let cpus: CpuSet = bank.attribute("cpus").unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
        let size = amount_of(bank.attribute("size"), bank.attribute("unit"))?;
        for (_, pu) in description.pus.iter_mut().filter(|(index, _)| cpus.contains(**index)) {
            pu.caches.push(Cache { level, kind: "Unified", size, cpus: cpus.clone() });
        }
    }
    Ok(())
}

/// PCI functions, then the drives and interfaces that hang on them.
fn add_devices(devices: &[Element], description: &mut Description) -> Result<(), String> {
    let capability = |device: &'_ Element, kind: &str| {
        device.all("capability").position(|capability| capability.attribute("type") == Some(kind))
    };
    for device in devices {
        if let Some(position) = capability(device, "pci") {
            let found = device.all("capability").nth(position);
            description.pci.extend(found.map(|capability| function(device, capability)).transpose()?);
        }
    }
    for device in devices {
        let place = device.text_of("path").unwrap_or_default();
        // The longest place a device lies under is its function's; bridges are functions too.
        let above = |pci: &Pci| pci.place.as_ref().is_some_and(|own| place.starts_with(&format!("{own}/")));
        let pci =
            description.pci.iter_mut().filter(|pci| above(pci)).max_by_key(|pci| pci.place.as_ref().map(String::len));
        let Some(pci) = pci else { continue };
        for capability in device.all("capability") {
            match capability.attribute("type") {
                Some("storage") => {
                    let name = capability.text_of("block").and_then(|path| path.strip_prefix("/dev/"));
                    let size = capability.text_of("size").and_then(|size| size.parse().ok()).map(Bytes::new);
                    pci.blocks.extend(name.map(|name| (name.to_owned(), size)));
                }
                Some("net") => {
                    let state = capability.child("link").and_then(|link| link.attribute("state")).map(str::to_owned);
                    pci.interfaces.extend(capability.text_of("interface").map(|name| (name.to_owned(), state)));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn function(device: &Element, capability: &Element) -> Result<Pci, String> {
    let part = |name: &str| capability.text_of(name).and_then(|text| text.parse::<u32>().ok());
    let address = match (part("domain"), part("bus"), part("slot"), part("function")) {
        (Some(domain), Some(bus), Some(slot), Some(function)) => {
            format!("{domain:04x}:{bus:02x}:{slot:02x}.{function:x}").parse().map_err(|error| format!("{error}"))?
        }
        _ => return Err(format!("`{}` has no PCI address", device.text_of("name").unwrap_or("a device"))),
    };
    let identity = |name: &str| {
        let text = capability.child(name)?.attribute("id")?;
        u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    let class = capability.text_of("class").and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    let node = capability.child("numa").and_then(|numa| numa.attribute("node")).and_then(|text| text.parse().ok());
    let group = capability.child("iommuGroup").map(|group| attribute(group, "number")).transpose()?.flatten();
    let inner =
        |kind: &'static str| capability.all("capability").find(move |inner| inner.attribute("type") == Some(kind));
    let physical = inner("phys_function").and_then(|inner| inner.child("address")).map(address_of).transpose()?;
    let virtual_functions = match inner("virt_functions") {
        None => None,
        Some(inner) => {
            let functions = inner.all("address").map(address_of).collect::<Result<Vec<_>, _>>()?;
            let total = attribute(inner, "maxCount")?;
            total.map(|total| (total, functions))
        }
    };
    Ok(Pci {
        address: Some(address),
        place: device.text_of("path").map(str::to_owned),
        class: class.filter(|class| *class <= 0xff_ffff),
        vendor: identity("vendor"),
        device: identity("product"),
        node,
        driver: device.child("driver").and_then(|driver| driver.text_of("name")).map(str::to_owned),
        iommu_group: group,
        physical_function: physical,
        virtual_functions,
        ..Pci::default()
    })
}

/// `<address domain='0x0000' bus='0x01' slot='0x10' function='0x0'/>`
fn address_of(element: &Element) -> Result<PciAddress, String> {
    let part = |name: &str| {
        let text = element.attribute(name).and_then(|text| text.strip_prefix("0x"));
        text.and_then(|text| u32::from_str_radix(text, 16).ok()).ok_or_else(|| format!("an address without `{name}`"))
    };
    format!("{:04x}:{:02x}:{:02x}.{:x}", part("domain")?, part("bus")?, part("slot")?, part("function")?)
        .parse()
        .map_err(|error| format!("{error}"))
}

fn attribute(element: &Element, name: &str) -> Result<Option<u32>, String> {
    let Some(text) = element.attribute(name) else { return Ok(None) };
    match text.parse::<u32>() {
        Ok(number) if number <= 65_535 => Ok(Some(number)),
        _ => Err(format!("{name} `{text:.20}` of `{}` is not an index (65535 at most)", element.name)),
    }
}

fn amount(element: Option<&Element>) -> Result<Option<Bytes>, String> {
    element.map_or(Ok(None), |element| amount_of(Some(element.text.trim()), element.attribute("unit")))
}

fn amount_of(text: Option<&str>, unit: Option<&str>) -> Result<Option<Bytes>, String> {
    let Some(text) = text else { return Ok(None) };
    // libvirt's own default is KiB.
    format!("{text} {}", unit.unwrap_or("KiB")).parse().map(Some).map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests;
