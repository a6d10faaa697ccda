//! A host's nodes to draw where only what it has left is known: PUs others hold, and memory in all, are then missing.

use nearmetal_fleet::{FleetHost, NodeSupply};

use crate::view::{MapNode, MapPu};

/// Nodes of a host, from its supply alone.
pub(super) fn nodes(host: &FleetHost) -> Vec<MapNode> {
    host.nodes.iter().map(node).collect()
}

fn node(supply: &NodeSupply) -> MapNode {
    let pu = |index: u32| MapPu { index, online: true, owners: Vec::new() };
    // What the host keeps comes first: it is the lowest core as a rule. Its cores and caches are not told here.
    let kept: Vec<MapPu> = supply.housekeeping.iter().map(pu).collect();
    let mut domains: Vec<(u32, Vec<Vec<MapPu>>)> = Vec::new();
    for core in &supply.cores {
        let pus: Vec<MapPu> = core.free.iter().copied().map(pu).collect();
        match domains.iter_mut().find(|(l3, _)| *l3 == core.l3) {
            Some((_, cores)) => cores.push(pus),
            None => domains.push((core.l3, vec![pus])),
        }
    }
    if !kept.is_empty() {
        match domains.first_mut() {
            Some((_, cores)) => cores.insert(0, kept),
            None => domains.push((0, vec![kept])),
        }
    }
    MapNode {
        index: Some(supply.index),
        packages: supply.package.into_iter().collect(),
        domains: domains.into_iter().map(|(_, cores)| cores).collect(),
        memory: crate::view::MapMemory::default(),
        devices: Vec::new(),
    }
}
