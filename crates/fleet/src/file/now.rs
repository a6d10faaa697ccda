//! What a host can give the fleet now: what is free, and what VMs of the fleet hold.

use std::collections::BTreeSet;

use nearmetal_host::ledger::{Ledger, Owner};
use nearmetal_host::{GuestProcess, Host};
use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};

use super::assemble::KnownHost;
use super::entry::VmEntry;
use crate::model::{CoreSupply, DeviceDemand, DeviceKind, DeviceSelector, DeviceSupply, FleetHost};
use crate::supply::{Meant, Reserve, kind_of, kinds};

/// Untouched memory of a guest that nobody needs to hear of: firmware and drivers leave as much.
const LITTLE: Bytes = Bytes::from_mib(64);

/// The host as if the processes `ours` were not there: their PUs, pages and devices are free, everybody else's are not.
/// `vms`: those of the file, which may name functions.
pub(super) fn supply(known: &KnownHost<'_>, ours: &BTreeSet<u32>, reserve: &Reserve, vms: &[VmEntry]) -> FleetHost {
    let mut supply = without_ours(known, ours, reserve, &meant(known, ours, vms));
    supply.unknown.extend(still_to_come(known.host, ours));
    supply
}

/// Functions that VMs of the fleet hold, and those that the file names for them.
fn meant(known: &KnownHost<'_>, ours: &BTreeSet<u32>, vms: &[VmEntry]) -> Meant {
    let held = ours.iter().map(|pid| -> Vec<PciAddress> { known.ledger.held_by(*pid).collect() });
    let named = vms.iter().map(|entry| -> Vec<PciAddress> {
        let function = |demand: &DeviceDemand| match &demand.selector {
            DeviceSelector::Function(function) => Some(*function),
            _ => None,
        };
        entry.vm.devices.iter().filter_map(function).collect()
    });
    let mut meant = Meant::new();
    for (number, functions) in held.chain(named).enumerate() {
        for function in functions {
            meant.entry(function).or_insert(number);
        }
    }
    meant
}

/// Memory that is free now and may be taken by guests that are not the fleet's, in a sentence.
fn still_to_come(host: &Host, ours: &BTreeSet<u32>) -> Option<String> {
    let untouched = |guest: &GuestProcess| -> Bytes {
        // Pages of pools are set aside when the guest starts.
        let own = guest.residency.iter().filter(|mapping| mapping.guest_memory && mapping.page_size == PageSize::SMALL);
        let (length, there) = own.fold((Bytes::ZERO, Bytes::ZERO), |(length, there), mapping| {
            let pages: u64 = mapping.pages.iter().map(|(_, pages)| *pages).sum();
            (length.plus(mapping.length), there.plus(mapping.page_size.bytes().times(pages)))
        });
        // Mappings may be longer than the memory they hold.
        guest.memory.map_or(length, |memory| memory.min(length)).less(there)
    };
    let others = host.guests.iter().filter(|guest| !ours.contains(&guest.pid));
    let named = others.map(|guest| (Owner::of(guest).name, untouched(guest))).filter(|(_, bytes)| *bytes >= LITTLE);
    let named: Vec<String> = named.map(|(name, bytes)| format!("{name} {bytes}")).collect();
    let sentence = "memory that guests outside the fleet were promised and have not touched yet counts as free";
    (!named.is_empty()).then(|| format!("{sentence}: {}", named.join(", ")))
}

fn without_ours(known: &KnownHost<'_>, ours: &BTreeSet<u32>, reserve: &Reserve, meant: &Meant) -> FleetHost {
    if ours.is_empty() {
        return FleetHost::with(known.name.to_owned(), known.host, known.ledger, reserve, meant);
    }
    let mut host = known.host.clone();
    for guest in known.host.guests.iter().filter(|guest| ours.contains(&guest.pid)) {
        for mapping in guest.residency.iter().filter(|mapping| mapping.guest_memory) {
            for (index, pages) in &mapping.pages {
                let Some(node) = host.nodes.iter_mut().find(|node| node.index == *index) else { continue };
                if mapping.page_size == PageSize::SMALL {
                    let bytes = mapping.page_size.bytes().times(*pages);
                    node.memory_free = node.memory_free.map(|free| free.plus(bytes));
                } else if let Some(pool) = node.pools.iter_mut().find(|pool| pool.size == mapping.page_size) {
                    pool.free = pool.free.saturating_add(*pages);
                }
            }
        }
    }
    FleetHost::with(known.name.to_owned(), &host, &without(known.host, known.ledger, ours), reserve, meant)
}

/// The ledger without what these processes own.
fn without(host: &Host, ledger: &Ledger, ours: &BTreeSet<u32>) -> Ledger {
    let mut ledger = ledger.clone();
    ledger.claims.retain(|claim| !ours.contains(&claim.owner.pid));
    ledger.floating.retain(|(owner, _)| !ours.contains(&owner.pid));
    ledger.memory.retain(|memory| !ours.contains(&memory.owner.pid));
    ledger.unseen.retain(|owner| !ours.contains(&owner.pid));
    ledger.devices.retain(|device| device.owner.as_ref().is_none_or(|owner| !ours.contains(&owner.pid)));
    let others: CpuSet = ledger.vcpus().flat_map(|claim| claim.cpus.iter().collect::<Vec<_>>()).collect();
    ledger.free = host.online().difference(&others);
    ledger
}

/// A partition is shared as its whole drive is: one supply more, where the host has a partition of that name.
pub(super) fn share_partition(host: &Host, supply: &mut FleetHost, name: &str) {
    let is_named = |other: &DeviceSupply| matches!(&other.kind, DeviceKind::Shared { name: known } if known == name);
    if supply.devices.iter().any(is_named) {
        return;
    }
    let Some(partition) = host.block_devices.iter().find(|disk| disk.name == name && disk.partition_of.is_some())
    else {
        return;
    };
    let whole = partition.partition_of.as_deref();
    let node = supply.devices.iter().find_map(|other| match &other.kind {
        DeviceKind::Shared { name } if Some(name.as_str()) == whole => Some(other.node),
        _ => None,
    });
    let kind = DeviceKind::Shared { name: name.to_owned() };
    supply.devices.push(DeviceSupply { kind, node: node.flatten(), functions: Vec::new(), free: 1 });
}

/// Gives the fleet a PU that was left out: the host's own, or one isolated from the scheduler, which a VM that stays is
/// bound to.
pub(super) fn add_pu(host: &Host, supply: &mut FleetHost, node: u32, pu: u32) {
    let Some(supply) = supply.nodes.iter_mut().find(|own| own.index == node) else { return };
    if supply.cores.iter().any(|core| core.free.contains(&pu)) {
        return;
    }
    supply.housekeeping.remove(pu);
    let core = host.cores.iter().find(|core| core.cpus.contains(pu)).map(|core| core.cpus.clone());
    let mut members = core.unwrap_or_else(|| CpuSet::one(pu));
    if let Some(node) = host.node(node) {
        members = members.intersection(&node.cpus);
    }
    match supply.cores.iter_mut().find(|core| core.free.iter().any(|free| members.contains(*free))) {
        Some(core) => {
            core.free.push(pu);
            core.free.sort_unstable();
        }
        None => {
            let cache = host.processor(pu).and_then(|processor| processor.last_level_cache.as_ref()?.first());
            let l3 = cache.or_else(|| host.node(node)?.cpus.first()).unwrap_or_default();
            let (kind, threads) = (kind_of(&kinds(host), &members), members.len() as u32);
            supply.cores.push(CoreSupply { free: vec![pu], threads, l3, kind });
            supply.cores.sort_by_key(|core| core.free.first().copied());
        }
    }
}
