//! Counts of the whole fleet, of each host and of each node.

use std::collections::BTreeMap;

use nearmetal_fleet::{Fleet, FleetPlan, Fragmentation, NodeSupply};
use nearmetal_units::Bytes;

/// The fleet in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Totals {
    pub(crate) vms: usize,
    pub(crate) placed: usize,
    pub(crate) vcpus: u64,
    pub(crate) vcpus_placed: u64,
    pub(crate) hosts: usize,
    pub(crate) hosts_used: usize,
    /// VMs that run and are to move.
    pub(crate) moved: usize,
    /// PUs hosts have to give, and those left.
    pub(crate) pus: u64,
    pub(crate) free_pus: u64,
    pub(crate) free_cores: u64,
    /// Memory hosts have to give, pools included, and what is left of it.
    pub(crate) memory: Bytes,
    pub(crate) free_memory: Bytes,
    /// Nodes with something stranded; PUs without memory, memory without PUs.
    pub(crate) stranded_nodes: usize,
    pub(crate) stranded_pus: u64,
    pub(crate) stranded_memory: Bytes,
}

/// What is left of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeRow {
    pub(crate) host: String,
    pub(crate) node: u32,
    pub(crate) pus: u32,
    pub(crate) free_pus: u32,
    pub(crate) free_cores: u32,
    pub(crate) largest_l3: u32,
    /// Memory it has to give, and what is left of it, pools included.
    pub(crate) memory: Bytes,
    pub(crate) free_memory: Bytes,
    /// Free pages by size, in words; empty without pools.
    pub(crate) pages: String,
    pub(crate) stranded: Option<String>,
    /// Part of the node that is stranded, 0 to 1.
    pub(crate) stranded_part: f64,
}

/// A host, small.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HostTile {
    pub(crate) name: String,
    /// VMs on it after the plan.
    pub(crate) vms: usize,
    pub(crate) pus: u64,
    pub(crate) free_pus: u64,
    pub(crate) memory: Bytes,
    pub(crate) free_memory: Bytes,
    pub(crate) stranded: bool,
    /// Refused VMs that a change of this host would place.
    pub(crate) nearest_for: usize,
}

/// Memory a node has to give, pools included.
fn given(node: &NodeSupply) -> Bytes {
    node.pools.iter().fold(node.memory, |sum, pool| sum.plus(pool.size.bytes().times(pool.free)))
}

fn left(node: &Fragmentation) -> Bytes {
    node.free_pages.iter().fold(node.free_memory, |sum, (size, pages)| sum.plus(size.bytes().times(*pages)))
}

pub(crate) fn nodes(fleet: &Fleet, plan: &FleetPlan) -> Vec<NodeRow> {
    let supplies = fleet.hosts.iter().flat_map(|host| host.nodes.iter().map(|node| (host.name.as_str(), node)));
    let supplies: BTreeMap<(&str, u32), &NodeSupply> =
        supplies.map(|(host, node)| ((host, node.index), node)).collect();
    let row = |node: &Fragmentation| {
        let left = left(node);
        let memory = supplies.get(&(node.host.as_str(), node.node)).map_or(left, |node| given(node));
        let of = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        let part = match node.free_pus {
            0 => of(left.get(), memory.get()),
            free => of(u64::from(free), u64::from(node.pus)),
        };
        let pages = node.free_pages.iter().filter(|(_, pages)| *pages > 0);
        let pages: Vec<_> = pages.map(|(size, pages)| format!("{pages} × {size}")).collect();
        NodeRow {
            host: node.host.clone(),
            node: node.node,
            pus: node.pus,
            free_pus: node.free_pus,
            free_cores: node.free_cores,
            largest_l3: node.largest_l3,
            memory,
            free_memory: left,
            pages: pages.join(", "),
            stranded: node.stranded.clone(),
            stranded_part: if node.stranded.is_some() { part } else { 0.0 },
        }
    };
    plan.fragmentation.iter().map(row).collect()
}

pub(crate) fn totals(fleet: &Fleet, plan: &FleetPlan) -> Totals {
    let mut totals = Totals { vms: fleet.vms.len(), placed: plan.placements.len(), ..Totals::default() };
    totals.vcpus = fleet.vms.iter().map(|vm| u64::from(vm.vcpus)).sum();
    let cells = plan.placements.iter().flat_map(|placement| &placement.cells);
    totals.vcpus_placed = cells.map(|cell| u64::from(cell.vcpus)).sum();
    for node in nodes(fleet, plan) {
        totals.pus += u64::from(node.pus);
        totals.free_pus += u64::from(node.free_pus);
        totals.free_cores += u64::from(node.free_cores);
        totals.memory = totals.memory.plus(node.memory);
        totals.free_memory = totals.free_memory.plus(node.free_memory);
        if node.stranded.is_some() {
            totals.stranded_nodes += 1;
            totals.stranded_pus += u64::from(node.free_pus);
            if node.free_pus == 0 {
                totals.stranded_memory = totals.stranded_memory.plus(node.free_memory);
            }
        }
    }
    let hosts = hosts(fleet, plan);
    totals.hosts = hosts.len();
    totals.hosts_used = hosts.iter().filter(|host| host.vms > 0).count();
    totals.moved = super::rows::placed(fleet, plan).iter().filter(|row| row.from.is_some()).count();
    totals
}

pub(crate) fn hosts(fleet: &Fleet, plan: &FleetPlan) -> Vec<HostTile> {
    let tile = |name: &str| HostTile {
        name: name.to_owned(),
        vms: 0,
        pus: 0,
        free_pus: 0,
        memory: Bytes::ZERO,
        free_memory: Bytes::ZERO,
        stranded: false,
        nearest_for: 0,
    };
    let mut tiles: Vec<HostTile> = fleet.hosts.iter().map(|host| tile(&host.name)).collect();
    let at: BTreeMap<&str, usize> = fleet.hosts.iter().enumerate().map(|(at, host)| (host.name.as_str(), at)).collect();
    for node in nodes(fleet, plan) {
        let Some(tile) = at.get(node.host.as_str()).and_then(|at| tiles.get_mut(*at)) else { continue };
        tile.pus += u64::from(node.pus);
        tile.free_pus += u64::from(node.free_pus);
        tile.memory = tile.memory.plus(node.memory);
        tile.free_memory = tile.free_memory.plus(node.free_memory);
        tile.stranded |= node.stranded.is_some();
    }
    for placement in &plan.placements {
        if let Some(tile) = at.get(placement.host.as_str()).and_then(|at| tiles.get_mut(*at)) {
            tile.vms += 1;
        }
    }
    for remedy in plan.refusals.iter().filter_map(|refusal| refusal.remedy.as_ref()) {
        if let Some(tile) = at.get(remedy.host.as_str()).and_then(|at| tiles.get_mut(*at)) {
            tile.nearest_for += 1;
        }
    }
    tiles
}
