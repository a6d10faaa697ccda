//! Both places of a VM that moves, as the checker can count them: the new one is the VM's, the old one is held by a VM
//! that is on its way out.

use std::collections::BTreeMap;

use nearmetal_units::{Bytes, PageSize};

use crate::model::{
    CellPlacement, CpuSharing, DeviceGrant, DeviceKind, FleetHost, GuestNuma, HostChange, Locality, SmtPolicy, Vm,
    VmPlacement,
};

/// What the old place holds beside the new one on the same host, as a VM of its own with this name.
pub(super) fn leaving(vm: &Vm, name: String, from: &VmPlacement, to: &VmPlacement) -> (Vm, VmPlacement) {
    let sharing = vm.sharing();
    let mut cells = Vec::new();
    for (at, cell) in from.cells.iter().enumerate() {
        let stays = staying(vm, from, to, at);
        let owned = |pu: &u32| to.cells.iter().any(|cell| cell.pus.contains(pu) || cell.idle.contains(pu));
        let pus: Vec<u32> = cell.pus.iter().chain(&cell.idle).filter(|pu| !owned(pu)).copied().collect();
        let vcpus = match (sharing, stays) {
            (CpuSharing::Dedicated, _) => pus.len() as u32,
            (_, None) => cell.vcpus,
            (_, Some(new)) => cell.vcpus.saturating_sub(new.vcpus),
        };
        let memory = stays.map_or(cell.memory, |new| cell.memory.less(new.memory));
        cells.push(CellPlacement { node: cell.node, vcpus, pus, idle: Vec::new(), memory });
    }
    let devices: Vec<DeviceGrant> = from.devices.iter().map(|grant| given_up(grant, to)).collect();
    let mut old = Vm::new(name.clone(), vm.vcpus, vm.memory);
    old.page_size = from.page_size;
    // A remainder of cores is left: no rule of whole cores holds for it, and it is near its devices no more.
    (old.smt, old.cpus, old.class) = (SmtPolicy::None, vm.cpus, vm.class);
    old.devices.clone_from(&vm.devices);
    for (at, demand) in old.devices.iter_mut().enumerate() {
        demand.locality = Locality::Far;
        demand.count = devices.iter().filter(|grant| grant.demand as usize == at).map(|grant| grant.count).sum();
    }
    let placement = VmPlacement { vm: name, cells, devices, ..from.clone() };
    (old, placement)
}

/// The new cell whose memory and vCPUs are the old one's where the two share a node: a guest's cells keep their order,
/// and what a guest does not see may be shared out anew.
fn staying<'a>(vm: &Vm, from: &VmPlacement, to: &'a VmPlacement, at: usize) -> Option<&'a CellPlacement> {
    let node = from.cells[at].node;
    match vm.numa {
        GuestNuma::Hidden => to.cells.iter().find(|cell| cell.node == node),
        GuestNuma::Mirror | GuestNuma::Cells(_) => to.cells.get(at).filter(|cell| cell.node == node),
    }
}

/// What of a grant is not in the new place.
fn given_up(grant: &DeviceGrant, to: &VmPlacement) -> DeviceGrant {
    let same = |new: &&DeviceGrant| new.supply == grant.supply;
    let mut left = grant.clone();
    if grant.functions.is_empty() {
        let kept: u32 = to.devices.iter().filter(same).map(|new| new.count).sum();
        left.count = grant.count.saturating_sub(kept);
    } else {
        left.functions.retain(|function| !to.devices.iter().any(|new| new.functions.contains(function)));
        left.count = left.functions.len() as u32;
    }
    left
}

/// Whether it gets functions it does not have now.
pub(super) fn swaps_devices(from: &VmPlacement, to: &VmPlacement, hosts: &[FleetHost]) -> bool {
    let host = hosts.iter().find(|host| host.name == from.host);
    let owned = |grant: &&DeviceGrant| {
        let supply = host.and_then(|host| host.devices.get(grant.supply as usize));
        !supply.is_some_and(|supply| matches!(supply.kind, DeviceKind::Shared { .. }))
    };
    let mut owned = from.devices.iter().filter(owned);
    owned.any(|grant| from.host != to.host || given_up(grant, to).count > 0)
}

/// Memory that is on another node afterwards.
pub(super) fn moved(vm: &Vm, from: &VmPlacement, to: &VmPlacement) -> Bytes {
    let bytes = from
        .cells
        .iter()
        .enumerate()
        .map(|(at, cell)| staying(vm, from, to, at).map_or(cell.memory, |new| cell.memory.less(new.memory)).get());
    Bytes::new(bytes.sum())
}

/// Pages pools that may grow must grow by to hold these.
pub(super) fn growth(hosts: &[&FleetHost], placements: &[VmPlacement]) -> Vec<HostChange> {
    let mut used: BTreeMap<(&str, u32, PageSize), u64> = BTreeMap::new();
    for placement in placements {
        let Some(size) = placement.page_size else { continue };
        for cell in &placement.cells {
            *used.entry((&placement.host, cell.node, size)).or_default() += cell.memory.get();
        }
    }
    let mut changes = Vec::new();
    for ((name, index, size), bytes) in used {
        let host = hosts.iter().find(|host| host.name == name);
        let node = host.and_then(|host| host.nodes.iter().find(|node| node.index == index));
        let Some(pool) = node.and_then(|node| node.pools.iter().find(|pool| pool.size == size)) else { continue };
        let add = bytes.div_ceil(size.bytes().get()).saturating_sub(pool.free);
        if add > 0 && pool.may_grow {
            changes.push(HostChange { host: name.to_owned(), node: index, size, add });
        }
    }
    changes
}
