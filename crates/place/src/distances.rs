//! Distances between nodes, sorted once for each plan.

use std::collections::BTreeMap;

use nearmetal_host::Host;

/// Distance taken where the firmware gives none: what Linux takes for a remote node (REMOTE_DISTANCE).
const REMOTE: u32 = 20;
/// Distance of a node to itself (LOCAL_DISTANCE).
pub(crate) const LOCAL: u32 = 10;

/// For every node all nodes by distance, itself first.
#[derive(Debug, Clone)]
pub(crate) struct Distances {
    near: BTreeMap<u32, Vec<(u32, u32)>>,
}

impl Distances {
    pub(crate) fn new(host: &Host) -> Self {
        let from = |node: &nearmetal_host::NumaNode| {
            let given: BTreeMap<u32, u32> = node.distances.iter().copied().collect();
            let distance = |other: u32| {
                let unknown = if other == node.index { LOCAL } else { REMOTE };
                given.get(&other).copied().unwrap_or(unknown)
            };
            let mut near: Vec<(u32, u32)> =
                host.nodes.iter().map(|other| (other.index, distance(other.index))).collect();
            near.sort_by_key(|(other, distance)| (*other != node.index, *distance, *other));
            (node.index, near)
        };
        Self { near: host.nodes.iter().map(from).collect() }
    }

    /// The distance of two nodes.
    pub(crate) fn between(&self, from: u32, to: u32) -> u32 {
        let known = self.near.get(&from).and_then(|near| near.iter().find(|(node, _)| *node == to));
        known.map_or(REMOTE, |(_, distance)| *distance)
    }

    /// All nodes, nearest first.
    pub(crate) fn around(&self, node: u32) -> impl Iterator<Item = u32> + Clone + '_ {
        self.near.get(&node).into_iter().flatten().map(|(node, _)| *node)
    }
}
