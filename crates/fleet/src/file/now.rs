//! What a host can give the fleet now: what is free, and what VMs of the fleet hold.

use std::collections::BTreeSet;

use nearmetal_host::Host;
use nearmetal_host::ledger::Ledger;
use nearmetal_units::{CpuSet, PageSize};

use super::assemble::KnownHost;
use crate::model::{CoreSupply, DeviceKind, DeviceSupply, FleetHost};
use crate::supply::{Reserve, kind_of, kinds};

/// The host as if the processes `ours` were not there: their PUs, pages and devices are free, everybody else's are not.
pub(super) fn supply(known: &KnownHost<'_>, ours: &BTreeSet<u32>, reserve: &Reserve) -> FleetHost {
    if ours.is_empty() {
        return FleetHost::of(known.name, known.host, known.ledger, reserve);
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
    FleetHost::of(known.name, &host, &without(known.host, known.ledger, ours), reserve)
}

/// The ledger without what these processes own.
fn without(host: &Host, ledger: &Ledger, ours: &BTreeSet<u32>) -> Ledger {
    let mut ledger = ledger.clone();
    ledger.claims.retain(|claim| !ours.contains(&claim.owner.pid));
    ledger.floating.retain(|(owner, _)| !ours.contains(&owner.pid));
    ledger.memory.retain(|memory| !ours.contains(&memory.owner.pid));
    for device in &mut ledger.devices {
        device.owner = device.owner.take().filter(|owner| !ours.contains(&owner.pid));
    }
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
