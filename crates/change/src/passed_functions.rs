//! PCI functions a definition hands through: whether they are there, can be isolated, and are not what the host itself
//! stands on.

use std::collections::BTreeSet;

use nearmetal_domain::DomainFacts;
use nearmetal_host::{BlockDevice, Host, PciDevice};
use nearmetal_units::PciAddress;

use crate::kernel::Kernel;

/// `RTF_UP` and `RTF_REJECT` of linux/route.h: a route that is not in force, or one that refuses, leads nowhere.
const IN_FORCE: u32 = 0x1;
const REFUSES: u32 = 0x200;

/// Interfaces a default route leaves through (proc(5), /proc/net/route; Linux net/ipv6/route.c, rt6_info_route).
pub(crate) fn default_routes(kernel: &dyn Kernel) -> BTreeSet<String> {
    // A kernel without one of the two protocols has no such file, and no such route.
    let read = |path: &str| kernel.read(path).ok().flatten().unwrap_or_default();
    let leads = |flags: Option<&&str>| {
        let flags = flags.and_then(|flags| u32::from_str_radix(flags, 16).ok()).unwrap_or(0);
        flags & IN_FORCE != 0 && flags & REFUSES == 0
    };
    let mut names = BTreeSet::new();
    for line in read("/proc/net/route").lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        if words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000") && leads(words.get(3)) {
            names.extend(words.first().map(|name| (*name).to_owned()));
        }
    }
    for line in read("/proc/net/ipv6_route").lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let everywhere = words.first().is_some_and(|to| to.bytes().all(|digit| digit == b'0'));
        if everywhere && words.get(1) == Some(&"00") && leads(words.get(8)) {
            names.extend(words.last().map(|name| (*name).to_owned()));
        }
    }
    names
}

/// What keeps these functions from being handed through, each with what to do.
pub(crate) fn problems(host: &Host, routes: &BTreeSet<String>, facts: &DomainFacts) -> Vec<String> {
    let guest = &facts.name;
    let passed: Vec<PciAddress> = facts.functions.iter().map(|function| function.address).collect();
    let mut problems = Vec::new();
    for address in &passed {
        let Some(device) = host.pci_devices.iter().find(|device| device.address == *address) else {
            problems.push(format!(
                "this machine lacks the PCI function {address} of `{guest}`: if it is a virtual function, give its \
                 card more of them (sriov_numvfs), or plan again"
            ));
            continue;
        };
        problems.extend(group_problem(host, device, &passed, guest));
        // The host keeps a physical function's virtual ones only as long as its driver is bound.
        let own = |other: &&PciDevice| other.address == *address || other.physical_function == Some(*address);
        for used in host.pci_devices.iter().filter(own) {
            problems.extend(uses(host, routes, used.address).into_iter().map(|what| {
                format!(
                    "the host itself uses the PCI function {address} of `{guest}`: {what}; give the guest another \
                    one"
                )
            }));
        }
    }
    problems
}

/// VFIO opens a group only if all functions in it are bridges, have no driver, or one of its own (Linux,
/// Documentation/driver-api/vfio.rst, and vfio_dev_viable of drivers/vfio).
fn group_problem(host: &Host, device: &PciDevice, passed: &[PciAddress], guest: &str) -> Option<String> {
    let address = device.address;
    let Some(group) = device.iommu_group else {
        return Some(format!(
            "the PCI function {address} of `{guest}` has no IOMMU group: enable the IOMMU in the firmware and on the \
             kernel \
             command line (intel_iommu=on)"
        ));
    };
    let stays = |other: &&PciDevice| {
        let driver = other.driver.as_deref();
        let harmless = driver.is_none_or(|driver| driver.contains("vfio") || matches!(driver, "pci-stub" | "pcieport"));
        !harmless && !other.is_bridge()
    };
    let others = host.pci_devices.iter().filter(|other| other.iommu_group == Some(group));
    let others: Vec<String> = others
        .filter(|other| !passed.contains(&other.address))
        .filter(stays)
        .map(|other| format!("{} (driver {})", other.address, other.driver.as_deref().unwrap_or("none")))
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "the PCI function {address} of `{guest}` shares IOMMU group {group} with {}, which the host drives: pass \
             these through too, bind them to vfio-pci, or use a function with its own group",
            others.join(", ")
        )
    })
}

/// What of the host stands on a function: file systems, swap and default routes.
fn uses(host: &Host, routes: &BTreeSet<String>, address: PciAddress) -> Vec<String> {
    let mut found = Vec::new();
    let drives: BTreeSet<&str> = host
        .block_devices
        .iter()
        .filter(|drive| drive.pci == Some(address) || drive.paths.contains(&address))
        .map(|drive| drive.name.as_str())
        .collect();
    let stacked = stacked_on(&host.block_devices, drives);
    for mount in host.mounts.iter().flatten() {
        let device = mount.source.strip_prefix("/dev/");
        // /dev/mapper/NAME and /dev/root are names the kernel has too.
        let is = |drive: &&BlockDevice| {
            device == Some(drive.name.as_str())
                || drive.mapped_name.as_deref().is_some_and(|name| device == Some(&*format!("mapper/{name}")))
        };
        if host.block_devices.iter().filter(|drive| stacked.contains(drive.name.as_str())).any(|drive| is(&drive)) {
            found.push(format!("{} is mounted from it", mount.point));
        }
    }
    for area in host.system.swap.iter().flatten() {
        let name = area.name.strip_prefix("/dev/").unwrap_or(&area.name);
        if stacked.contains(name) {
            found.push(format!("{} is its swap area", area.name));
        }
    }
    for interface in host.network_interfaces.iter().filter(|interface| interface.pci == Some(address)) {
        let mut name = interface.name.as_str();
        // Over bonds and bridges; more levels than there are interfaces go round.
        for _ in 0..=host.network_interfaces.len() {
            if routes.contains(name) {
                found.push(format!("the default route uses {name}"));
                break;
            }
            let above = host.network_interfaces.iter().find(|other| other.name == name);
            match above.and_then(|other| other.master.as_deref()) {
                Some(master) => name = master,
                None => break,
            }
        }
    }
    found
}

/// These devices, their partitions, and everything stacked on them.
fn stacked_on<'a>(devices: &'a [BlockDevice], mut names: BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    loop {
        let more: Vec<&str> = devices
            .iter()
            .filter(|device| !names.contains(device.name.as_str()))
            .filter(|device| {
                let below = device.partition_of.iter().chain(&device.parts);
                below.into_iter().any(|part| names.contains(part.as_str()))
            })
            .map(|device| device.name.as_str())
            .collect();
        if more.is_empty() {
            return names;
        }
        names.extend(more);
    }
}

#[cfg(test)]
mod tests;
