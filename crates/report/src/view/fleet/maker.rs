//! How a sheet comes about: who has what of a host, before and after.

use nearmetal_fleet::{DeviceKind, DeviceSupply, FleetHost, FleetPlan, NodeSupply, VmPlacement};
use nearmetal_host::ThreadRole;
use nearmetal_host::ledger::Ledger;
use nearmetal_units::{Bytes, PageSize};

use super::owners::{OwnerKind, Resident};
use super::rows::kind_words;
use super::sheet::{Both, PuUse, SheetDevice, SheetMemory, SheetNode, SheetPu};
use crate::view::MapNode;

/// What is known of a host while its sheet is made.
pub(super) struct Maker<'a> {
    pub(super) host: &'a FleetHost,
    pub(super) plan: &'a FleetPlan,
    pub(super) ledger: Option<&'a Ledger>,
    pub(super) residents: Vec<Resident<'a>>,
}

impl<'a> Maker<'a> {
    /// Placements of the fleet's VMs on this host, by owner.
    fn placements(&self, after: bool) -> impl Iterator<Item = (usize, &'a VmPlacement)> {
        let at = move |resident: &Resident<'a>| if after { resident.after } else { resident.before };
        self.residents.iter().enumerate().filter_map(move |(owner, resident)| Some((owner, at(resident)?)))
    }

    pub(super) fn node(&self, node: &MapNode) -> SheetNode {
        let supply = node.index.and_then(|index| self.host.nodes.iter().find(|supply| supply.index == index));
        let floats = Both::of(|after| node.index.map(|index| self.floats(index, after)).unwrap_or_default());
        let pu = |pu: &crate::view::MapPu| SheetPu {
            index: pu.index,
            uses: Both::of(|after| {
                if pu.online { self.pu(pu.index, supply, !floats.at(after).is_empty(), after) } else { PuUse::Offline }
            }),
        };
        let cores = |cores: &Vec<Vec<_>>| cores.iter().map(|core| core.iter().map(pu).collect()).collect();
        SheetNode {
            index: node.index,
            domains: node.domains.iter().map(cores).collect(),
            memory: Both::of(|after| supply.map(|own| self.memory(node, own, after)).unwrap_or_default()),
            devices: node.index.map(|index| self.devices(|node| node == Some(index))).unwrap_or_default(),
            floats,
        }
    }

    /// vCPUs on a node that have no PU of their own.
    fn floats(&self, node: u32, after: bool) -> Vec<(usize, u32)> {
        let mut floats = Vec::new();
        for (owner, placement) in self.placements(after) {
            let cells = placement.cells.iter().filter(|cell| cell.node == node && cell.pus.is_empty());
            let vcpus: u32 = cells.map(|cell| cell.vcpus).sum();
            if vcpus > 0 {
                floats.push((owner, vcpus));
            }
        }
        floats
    }

    fn pu(&self, pu: u32, supply: Option<&NodeSupply>, shared: bool, after: bool) -> PuUse {
        for (owner, placement) in self.placements(after) {
            for cell in &placement.cells {
                if cell.pus.contains(&pu) {
                    return PuUse::Vcpu { owner, floats: placement.floating.is_some() };
                }
                if cell.idle.contains(&pu) {
                    return PuUse::Idle(owner);
                }
            }
        }
        if let Some(owner) = self.holder(pu) {
            return PuUse::Held(owner);
        }
        let Some(supply) = supply else { return PuUse::LeftOut };
        if supply.housekeeping.contains(pu) {
            PuUse::Kept
        } else if supply.cores.iter().any(|core| core.free.contains(&pu)) {
            if shared { PuUse::Shared } else { PuUse::Free }
        } else {
            PuUse::LeftOut
        }
    }

    /// The guest that is not of the fleet and has a vCPU bound to this PU.
    fn holder(&self, pu: u32) -> Option<usize> {
        let vcpu = |claim: &&nearmetal_host::ledger::Claim| matches!(claim.role, ThreadRole::Vcpu(_));
        let claims = self.ledger?.on(pu).filter(vcpu);
        claims.filter_map(|claim| self.other(&claim.owner.name)).min()
    }

    fn other(&self, name: &str) -> Option<usize> {
        let other = |resident: &Resident<'_>| resident.owner.kind == OwnerKind::Other && resident.owner.name == name;
        self.residents.iter().position(other)
    }

    fn memory(&self, node: &MapNode, supply: &NodeSupply, after: bool) -> SheetMemory {
        let mut uses: Vec<(usize, Bytes, Option<PageSize>)> = Vec::new();
        for (owner, placement) in self.placements(after) {
            for cell in placement.cells.iter().filter(|cell| cell.node == supply.index && cell.memory > Bytes::ZERO) {
                uses.push((owner, cell.memory, placement.page_size));
            }
        }
        let used = |size: Option<PageSize>| {
            let own = uses.iter().filter(|(_, _, pages)| *pages == size);
            own.fold(Bytes::ZERO, |sum, (_, amount, _)| sum.plus(*amount))
        };
        let given = supply.pools.iter().fold(supply.memory, |sum, pool| sum.plus(pool.size.bytes().times(pool.free)));
        let left = self
            .plan
            .fragmentation
            .iter()
            .find(|left| after && left.node == supply.index && left.host == self.host.name);
        let added = |size: PageSize| {
            let changes = self.plan.pools.iter().filter(|change| {
                after && change.host == self.host.name && change.node == supply.index && change.size == size
            });
            changes.map(|change| change.add).sum::<u64>()
        };
        let mut pools = Vec::new();
        for pool in &supply.pools {
            let known = left.and_then(|left| left.free_pages.iter().find(|(size, _)| *size == pool.size));
            let free = known.map_or_else(
                || (pool.free + added(pool.size)).saturating_sub(used(Some(pool.size)).pages(pool.size)),
                |(_, free)| *free,
            );
            if pool.free > 0 || free > 0 || added(pool.size) > 0 || used(Some(pool.size)) > Bytes::ZERO {
                pools.push((pool.size, free, added(pool.size)));
            }
        }
        let others: Vec<(usize, Bytes)> = self
            .ledger
            .iter()
            .flat_map(|ledger| &ledger.memory)
            .filter(|used| used.node == supply.index && used.memory > Bytes::ZERO)
            .filter_map(|used| Some((self.other(&used.owner.name)?, used.memory)))
            .collect();
        let known = others.iter().fold(given, |sum, (_, amount)| sum.plus(*amount));
        // Nothing is given of a node whose free memory nobody told: that is no knowledge that others hold it.
        let told = node.memory.free.is_some() || supply.memory > Bytes::ZERO;
        SheetMemory {
            total: node.memory.total,
            held: node.memory.total.filter(|_| told).map(|total| total.less(known)),
            others,
            free: left.map_or_else(|| supply.memory.less(used(None)), |left| left.free_memory),
            uses,
            pools,
        }
    }

    /// Devices of one place: those in use first, those nobody wants last.
    pub(super) fn devices(&self, here: impl Fn(Option<u32>) -> bool) -> Vec<SheetDevice> {
        let index =
            |supply: &DeviceSupply| supply.node.and_then(|at| self.host.nodes.get(at as usize)).map(|node| node.index);
        let mut devices = Vec::new();
        for (at, supply) in self.host.devices.iter().enumerate().filter(|(_, supply)| here(index(supply))) {
            let grants = Both::of(|after| self.grants(at, after));
            let shared = matches!(supply.kind, DeviceKind::Shared { .. });
            devices.push(SheetDevice { name: device_words(supply), of: (!shared).then_some(supply.free), grants });
        }
        for device in self.ledger.iter().flat_map(|ledger| &ledger.devices).filter(|device| here(device.node)) {
            let Some(owner) = device.owner.as_ref().and_then(|owner| self.other(&owner.name)) else { continue };
            let grants = Both::of(|_| vec![(owner, 1)]);
            devices.push(SheetDevice { name: device.name.clone(), of: None, grants });
        }
        let rank = |device: &SheetDevice| match (device.grants.after.is_empty(), device.grants.before.is_empty()) {
            (false, _) => 0,
            (_, false) => 1,
            _ if device.of.is_some() => 2,
            _ => 3,
        };
        devices.sort_by_key(rank);
        devices
    }

    fn grants(&self, supply: usize, after: bool) -> Vec<(usize, u32)> {
        let mut grants: Vec<(usize, u32)> = Vec::new();
        for (owner, placement) in self.placements(after) {
            let own = placement.devices.iter().filter(|grant| grant.supply as usize == supply);
            let count: u32 = own.map(|grant| grant.count).sum();
            if count > 0 {
                grants.push((owner, count));
            }
        }
        grants
    }
}

fn device_words(supply: &DeviceSupply) -> String {
    match (&supply.kind, supply.free) {
        (DeviceKind::VirtualFunctions { of }, 1) => format!("VF of {of}"),
        (DeviceKind::VirtualFunctions { of }, _) => format!("VFs of {of}"),
        (kind, _) => kind_words(kind),
    }
}
