//! Fleets for tests.
#![allow(dead_code, reason = "each test file uses some of it")]

use nearmetal_fleet::*;
use nearmetal_units::{Bytes, PageSize};

/// A node of cores of so many PUs, so many L3 domains, and memory in GiB.
pub(crate) fn node(index: u32, first_pu: u32, cores: u32, threads: u32, l3s: u32, gib: u64, huge: u64) -> NodeSupply {
    let per_l3 = cores.div_ceil(l3s.max(1)).max(1);
    NodeSupply {
        index,
        package: Some(index / 2),
        cores: (0..cores)
            .map(|core| CoreSupply {
                free: (0..threads).map(|thread| first_pu + core * threads + thread).collect(),
                threads,
                kind: 0,
                l3: first_pu + core / per_l3 * per_l3 * threads,
            })
            .collect(),
        memory: Bytes::from_mib(gib << 10),
        pools: vec![PoolSupply { size: PageSize::HUGE_1G, free: huge, may_grow: false }],
        ..NodeSupply::default()
    }
}

/// A host of equal nodes; distances 10, 12 inside a package, 20 beyond.
pub(crate) fn host(name: &str, nodes: u32, cores: u32, threads: u32, gib: u64, huge: u64) -> FleetHost {
    let distance = |from: u32, to: u32| match (from == to, from / 2 == to / 2) {
        (true, _) => 10,
        (_, true) => 12,
        _ => 20,
    };
    FleetHost {
        name: name.to_owned(),
        nodes: (0..nodes).map(|index| node(index, index * cores * threads, cores, threads, 1, gib, huge)).collect(),
        distances: (0..nodes).map(|from| (0..nodes).map(|to| distance(from, to)).collect()).collect(),
        ..FleetHost::default()
    }
}

pub(crate) fn vm(name: impl Into<String>, vcpus: u32, gib: u64) -> Vm {
    Vm::new(name, vcpus, Bytes::from_mib(gib << 10))
}

/// Options without a clock.
pub(crate) fn steps(steps: u64) -> Options {
    Options { seed: 7, steps, budget: None, arrival: Arrival::Batch }
}
