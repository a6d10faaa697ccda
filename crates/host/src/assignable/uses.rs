//! What the host does with a function.

use std::collections::BTreeSet;

use nearmetal_units::PciAddress;

use super::Obstacle;
use crate::ledger::Ledger;
use crate::{BlockDevice, Host, PciDevice};

/// Interfaces and whole drives of a function, those that other functions lead to as well included.
pub fn names(host: &Host, function: PciAddress) -> Vec<String> {
    let interfaces = host.network_interfaces.iter().filter(|one| one.pci == Some(function)).map(|one| &one.name);
    let drives = host.block_devices.iter().filter(|one| one.partition_of.is_none() && is_on(one, function));
    interfaces.chain(drives.map(|one| &one.name)).cloned().collect()
}

fn is_on(device: &BlockDevice, function: PciAddress) -> bool {
    device.pci == Some(function) || device.paths.contains(&function)
}

pub(super) fn of(host: &Host, ledger: &Ledger, device: &PciDevice) -> Vec<Obstacle> {
    let mut found = Vec::new();
    drives(host, ledger, device, &mut found);
    interfaces(host, device.address, &mut found);
    if device.console == Some(true) {
        found.push(Obstacle::Console);
    }
    if let Some(state) = device.sriov.as_ref().filter(|state| state.vfs > 0) {
        found.push(Obstacle::HasVirtualFunctions { count: state.vfs });
    }
    found
}

fn drives(host: &Host, ledger: &Ledger, device: &PciDevice, found: &mut Vec<Obstacle>) {
    let function = device.address;
    let vanishes = |path: &PciAddress| {
        let own = device.sriov.as_ref().is_some_and(|state| state.functions.contains(path));
        *path == function || own
    };
    // A namespace that other controllers lead to as well outlives this one.
    let whole = host.block_devices.iter().filter(|one| one.partition_of.is_none() && is_on(one, function));
    for drive in whole.filter(|drive| drive.paths.iter().all(vanishes)) {
        let all = built_on(host, &drive.name);
        let before = found.len();
        for name in &all {
            found.extend(mounts(host, name).map(|point| Obstacle::Mounted { device: name.clone(), point }));
            if is_swap(host, name) {
                found.push(Obstacle::Swap { device: name.clone() });
            }
        }
        for disk in ledger.devices.iter().filter(|disk| all.contains(&disk.name)) {
            if let Some(owner) = &disk.owner {
                found.push(Obstacle::Disk { device: disk.name.clone(), guest: owner.name.clone() });
            }
        }
        if found.len() > before {
            continue;
        }
        let parts = all.iter().filter_map(|name| host.block_device(name));
        let holder = parts.filter_map(|part| Some((part.name.clone(), part.holders.first()?.clone()))).next();
        found.extend(holder.map(|(device, holder)| Obstacle::Stacked { device, holder }));
    }
}

/// A drive, its partitions, and all that is stacked on them.
fn built_on(host: &Host, drive: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([drive.to_owned()]);
    loop {
        let on = |one: &&BlockDevice| {
            let part = one.partition_of.as_ref().is_some_and(|whole| all.contains(whole));
            let stacked = one.parts.iter().any(|part| all.contains(part));
            let holds =
                host.block_devices.iter().any(|below| all.contains(&below.name) && below.holders.contains(&one.name));
            !all.contains(&one.name) && (part || stacked || holds)
        };
        let more: Vec<String> = host.block_devices.iter().filter(on).map(|one| one.name.clone()).collect();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// Where a block device is mounted, the root first. Its number tells, or its name: a file system of several devices has a
/// number of its own.
fn mounts<'a>(host: &'a Host, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let device = host.block_device(name);
    let own = move |mount: &&crate::Mount| {
        let number = device.and_then(|device| device.number.as_ref());
        number.is_some_and(|number| mount.number.as_ref() == Some(number)) || is_path_of(host, &mount.source, name)
    };
    let mut points: Vec<String> = host.mounts.iter().flatten().filter(own).map(|mount| mount.point.clone()).collect();
    points.sort();
    // One is enough to know it is used, and containers mount the same one many times.
    points.into_iter().take(1)
}

/// Whether a path below /dev is this device.
fn is_path_of(host: &Host, path: &str, name: &str) -> bool {
    let Some(rest) = path.strip_prefix("/dev/") else { return false };
    let mapped = host.block_device(name).and_then(|device| device.mapped_name.as_deref());
    rest == name || rest.strip_prefix("mapper/").is_some_and(|rest| Some(rest) == mapped)
}

fn is_swap(host: &Host, name: &str) -> bool {
    host.system.swap.iter().flatten().any(|area| is_path_of(host, &area.name, name))
}

fn interfaces(host: &Host, function: PciAddress, found: &mut Vec<Obstacle>) {
    for interface in host.network_interfaces.iter().filter(|one| one.pci == Some(function)) {
        let name = || interface.name.clone();
        if interface.default_route == Some(true) {
            found.push(Obstacle::DefaultRoute { interface: name(), through: None });
            continue;
        }
        match masters(host, interface.master.as_deref()).as_slice() {
            [] if interface.state.as_deref() == Some("up") => found.push(Obstacle::InterfaceUp { interface: name() }),
            [] => {}
            [first, ..] => {
                let all = masters(host, Some(first));
                let routed = all.iter().find(|master| {
                    host.network_interfaces.iter().any(|one| one.name == **master && one.default_route == Some(true))
                });
                found.push(match routed {
                    Some(through) => Obstacle::DefaultRoute { interface: name(), through: Some(through.clone()) },
                    None => Obstacle::Member { interface: name(), master: first.clone() },
                });
            }
        }
    }
}

/// What an interface belongs to, and what that belongs to: a bond may be a port of a bridge.
fn masters(host: &Host, first: Option<&str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut next = first.map(str::to_owned);
    while let Some(name) = next.filter(|name| !all.contains(name)) {
        next = host.network_interfaces.iter().find(|one| one.name == name).and_then(|one| one.master.clone());
        all.push(name);
    }
    all
}
