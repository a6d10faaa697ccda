//! Hosts of the benches.

use nearmetal_fleet::{CoreSupply, FleetHost, NodeSupply, PoolSupply};
use nearmetal_units::{Bytes, PageSize};

/// A node of so many cores of `threads` PUs and one L3 domain; memory in GiB, free or as 1 GiB pages.
pub(crate) fn node(index: u32, first_pu: u32, cores: u32, threads: u32, gib: u64, as_pages: bool) -> NodeSupply {
    let core = |core: u32| {
        let first = first_pu + core * threads;
        CoreSupply { free: (first..first + threads).collect(), threads, l3: first_pu, kind: 0 }
    };
    NodeSupply {
        index,
        package: Some(index / 2),
        cores: (0..cores).map(core).collect(),
        memory: if as_pages { Bytes::ZERO } else { Bytes::from_mib(gib << 10) },
        pools: vec![PoolSupply { size: PageSize::HUGE_1G, free: if as_pages { gib } else { 0 }, may_grow: false }],
        ..NodeSupply::default()
    }
}

/// A host of these nodes: distance 12 inside a package of two nodes, 20 beyond.
pub(crate) fn host(name: String, nodes: Vec<NodeSupply>) -> FleetHost {
    let distance = |from: &NodeSupply, to: &NodeSupply| match (from.index == to.index, from.package == to.package) {
        (true, _) => 10,
        (_, true) => 12,
        _ => 20,
    };
    let distances = nodes.iter().map(|from| nodes.iter().map(|to| distance(from, to)).collect()).collect();
    FleetHost { name, nodes, distances, ..FleetHost::default() }
}

/// A host of equal nodes.
pub(crate) fn even(name: String, nodes: u32, cores: u32, threads: u32, gib: u64, as_pages: bool) -> FleetHost {
    host(name, (0..nodes).map(|index| node(index, index * cores * threads, cores, threads, gib, as_pages)).collect())
}
