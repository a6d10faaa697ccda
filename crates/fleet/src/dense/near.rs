//! Distances on a host, sorted once; hosts that are alike share them.

use crate::model::FleetHost;

/// Distance taken where none is given: what Linux takes for a remote node (REMOTE_DISTANCE).
const REMOTE: u32 = 20;
/// Distance of a node to itself (LOCAL_DISTANCE).
const LOCAL: u32 = 10;

/// Distances by position of the nodes on their host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Near {
    count: usize,
    /// `distance - 10`, row by row.
    beyond: Vec<u32>,
    /// For each node all nodes, nearest first, itself before all.
    order: Vec<u16>,
    package: Vec<u32>,
}

impl Near {
    pub(crate) fn of(host: &FleetHost) -> Self {
        let count = host.nodes.len();
        let mut beyond = vec![0; count * count];
        let mut order = Vec::with_capacity(count * count);
        for from in 0..count {
            for to in 0..count {
                let given = host.distances.get(from).and_then(|row| row.get(to)).copied();
                let distance = given.unwrap_or(if from == to { LOCAL } else { REMOTE });
                beyond[from * count + to] = distance.saturating_sub(LOCAL);
            }
            let mut row: Vec<u16> = (0..count as u16).collect();
            row.sort_by_key(|to| (usize::from(*to) != from, beyond[from * count + usize::from(*to)], *to));
            order.extend(row);
        }
        // A node of no known package is alone in one.
        let package = host.nodes.iter().zip(0u32..).map(|(node, at)| node.package.unwrap_or(u32::MAX - at)).collect();
        Self { count, beyond, order, package }
    }

    /// Nodes.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Distance minus 10.
    pub(crate) fn beyond(&self, from: usize, to: usize) -> u64 {
        u64::from(self.beyond[from * self.count + to])
    }

    /// All nodes, nearest first.
    pub(crate) fn around(&self, from: usize) -> &[u16] {
        &self.order[from * self.count..(from + 1) * self.count]
    }

    /// Whether two nodes are as far from every third one.
    pub(crate) fn alike(&self, one: usize, other: usize) -> bool {
        let thirds = (0..self.count).filter(|third| *third != one && *third != other);
        self.beyond(one, other) == self.beyond(other, one)
            && thirds.into_iter().all(|third| {
                self.beyond(one, third) == self.beyond(other, third)
                    && self.beyond(third, one) == self.beyond(third, other)
            })
    }

    /// Whether two nodes are in one package.
    pub(crate) fn same_package(&self, one: usize, other: usize) -> bool {
        self.package[one] == self.package[other]
    }
}
