//! `[[vm.device]]`, and what the planner is asked for all devices of a VM.

use nearmetal_units::PciAddress;

use super::disks::LOCALITIES;
use super::entry::{NicKind, VmEntry};
use super::error::shown;
use super::keys;
use super::section::{At, Section};
use crate::model::{DeviceDemand, DeviceSelector, Locality};

/// Devices of one entry at most, as the planner has it.
const MOST_DEVICES: i64 = 4096;

/// Which entry of a VM a demand comes from, by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemandOf {
    /// Of `nics`.
    Nic(usize),
    /// Of `disks`.
    Disk(usize),
    /// Of `devices`.
    Device(usize),
}

impl VmEntry {
    /// What the planner is asked for its interfaces, disks and devices, in this order: `vm.devices` with where each comes
    /// from. An entry without locality asks for nothing.
    pub fn demands(&self) -> Vec<(DemandOf, DeviceDemand)> {
        let mut demands = Vec::new();
        for (at, nic) in self.nics.iter().enumerate() {
            let Some(locality) = nic.locality else { continue };
            let selector = match (nic.kind, &nic.interface) {
                (NicKind::Vf, of) => DeviceSelector::VirtualFunction { of: of.clone() },
                (_, Some(name)) => DeviceSelector::Shared { name: name.clone() },
                (_, None) => continue,
            };
            demands.push((DemandOf::Nic(at), DeviceDemand { selector, count: 1, locality }));
        }
        for (at, disk) in self.disks.iter().enumerate() {
            if let (Some(name), Some(locality)) = (&disk.drive, disk.locality) {
                let selector = DeviceSelector::Shared { name: name.clone() };
                demands.push((DemandOf::Disk(at), DeviceDemand { selector, count: 1, locality }));
            }
        }
        let own = self.devices.iter().enumerate();
        demands.extend(own.map(|(at, demand)| (DemandOf::Device(at), demand.clone())));
        demands
    }
}

pub(super) fn devices(vm: &Section<'_>) -> Vec<At<DeviceDemand>> {
    let mut found: Vec<At<DeviceDemand>> = Vec::new();
    for section in &vm.tables("device", &keys::DEVICE) {
        let Some(device) = device(section) else { continue };
        if let DeviceSelector::Function(address) = &device.value.selector {
            if found.iter().any(|other| other.value.selector == device.value.selector) {
                let message = format!("it has the function {address} already");
                section.wrong(&device.span, message, "take one of the two away");
            }
        }
        found.push(device);
    }
    found
}

fn device(section: &Section<'_>) -> Option<At<DeviceDemand>> {
    let class = section.line("class");
    let id = section.line("id");
    let function = section.line("function");
    let count = section.integer("count", 1..=MOST_DEVICES, "devices");
    let locality = section.word("locality", &LOCALITIES).map_or(Locality::Preferred, |locality| locality.value);
    section.finish();
    let given: Vec<&str> = ["class", "id", "function"].into_iter().filter(|key| section.has(key)).collect();
    match given.as_slice() {
        [] => {
            let help =
                "add class = \"0302\", id = \"10de:1db6\" or function = \"0000:41:00.0\" (`lspci -Dnn` shows all)";
            section.wrong(&section.span, "nothing says which device it is", help);
            return None;
        }
        [_] => {}
        [first, second, ..] => {
            let help = "a device is chosen in one way: keep class, id or function";
            section.wrong(&section.place(second), format!("both `{first}` and `{second}` are given"), help);
            return None;
        }
    }
    if let (Some(_), Some(count)) = (&function, count.as_ref().filter(|count| count.value > 1)) {
        section.wrong(
            &count.span,
            "both `function` and `count` are given",
            "an address is one function: take `count` away",
        );
    }
    let span = section.place(given[0]);
    let selector = if let Some(class) = class {
        DeviceSelector::Class { class: class_of(section, &class)? }
    } else if let Some(id) = id {
        id_of(section, &id)?
    } else {
        DeviceSelector::Function(function_of(section, &function?)?)
    };
    let count = count.map_or(1, |count| count.value as u32);
    Some(At { value: DeviceDemand { selector, count, locality }, span })
}

fn hex(text: &str) -> Option<u16> {
    let plain = text.len() == 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u16::from_str_radix(text, 16).ok().filter(|_| plain)
}

fn class_of(section: &Section<'_>, class: &At<String>) -> Option<u16> {
    let found = hex(&class.value);
    if found.is_none() {
        let message = format!("`class` is \"{}\", which is not a device class", shown(&class.value));
        let help =
            "write four hex digits as `lspci -nn` shows them: \"0302\" is a 3D controller, \"0108\" an NVMe drive";
        section.wrong(&class.span, message, help);
    }
    found
}

fn id_of(section: &Section<'_>, id: &At<String>) -> Option<DeviceSelector> {
    let parts = id.value.split_once(':').and_then(|(vendor, device)| Some((hex(vendor)?, hex(device)?)));
    if parts.is_none() {
        let message = format!("`id` is \"{}\", which is not a vendor and device id", shown(&id.value));
        section.wrong(&id.span, message, "write VENDOR:DEVICE as `lspci -nn` shows it: \"10de:1db6\"");
    }
    parts.map(|(vendor, device)| DeviceSelector::Id { vendor, device })
}

fn function_of(section: &Section<'_>, function: &At<String>) -> Option<PciAddress> {
    let found = function.value.parse().ok();
    if found.is_none() {
        let message = format!("`function` is \"{}\", which is not a PCI address", shown(&function.value));
        section.wrong(&function.span, message, "write it as `lspci -D` shows it: \"0000:41:00.0\"");
    }
    found
}
