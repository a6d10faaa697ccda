//! What each node can still give: free memory above the reserve, and pages left in its pools.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_host::Host;
use nearmetal_units::{Bytes, PageSize};

use crate::occupied::Occupied;
use crate::plan::PoolChange;
use crate::policy::Policy;

/// The memory of all nodes, as the plan goes on.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    nodes: BTreeMap<u32, NodeMemory>,
}

#[derive(Debug, Clone)]
struct NodeMemory {
    /// Memory that can become guest memory; `None` if the kernel does not say how much is free.
    room: Option<Bytes>,
    reserve: Bytes,
    pools: Vec<Pool>,
}

#[derive(Debug, Clone)]
struct Pool {
    size: PageSize,
    /// Persistent pages now.
    before: u64,
    /// Pages in use by guests outside the plan.
    others: u64,
    /// Pages the plan has given away.
    planned: u64,
}

impl Pool {
    fn spare(&self) -> u64 {
        self.before.saturating_sub(self.others).saturating_sub(self.planned)
    }
}

/// Pages of one guest on one node.
pub(crate) type Share = (u32, u64);

impl Memory {
    pub(crate) fn new(host: &Host, occupied: &Occupied, policy: &Policy) -> Self {
        let node_memory = |node: &nearmetal_host::NumaNode| {
            let returned = |size: PageSize| size.bytes().times(occupied.returning(node.index, size));
            // Pages of a pool go back to the pool; all others become free memory.
            let sizes: BTreeSet<PageSize> =
                occupied.returning.iter().map(|held| held.size).filter(|size| node.pool(*size).is_none()).collect();
            let returning = sizes.into_iter().fold(Bytes::ZERO, |sum, size| sum.plus(returned(size)));
            let reserve = policy.reserve(node.memory_total);
            // A memory-less node is known to have nothing, even if MemFree is missing.
            let free =
                if node.memory_total == Some(Bytes::ZERO) { Some(Bytes::ZERO) } else { host.memory_available(node) };
            let entry = NodeMemory {
                room: free.map(|free| free.plus(returning).less(reserve)),
                reserve,
                pools: node
                    .pools
                    .iter()
                    .map(|pool| Pool {
                        size: pool.size,
                        before: pool.persistent(),
                        others: pool
                            .total
                            .saturating_sub(pool.free)
                            .saturating_sub(occupied.returning(node.index, pool.size)),
                        planned: 0,
                    })
                    .collect(),
            };
            (node.index, entry)
        };
        let allowed = host.nodes.iter().filter(|node| policy.allowed.has_node(node.index));
        Self { nodes: allowed.map(node_memory).collect() }
    }

    fn node(&self, node: u32) -> Option<&NodeMemory> {
        self.nodes.get(&node)
    }

    /// Nodes that memory may come from.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.keys().copied()
    }

    /// Whether any node has a pool of that size.
    pub(crate) fn has_pool(&self, size: PageSize) -> bool {
        self.nodes.values().any(|node| node.pools.iter().any(|pool| pool.size == size))
    }

    /// Pages of that size a node can give: spare ones of its pool, and new ones. Without a pool of that size there are
    /// none, except for the base page, which needs no pool.
    pub(crate) fn pages(&self, node: u32, size: PageSize) -> u64 {
        let Some(entry) = self.node(node) else { return 0 };
        let new = entry.room.map_or(u64::MAX / 4, |room| room.get() / size.bytes().get());
        match entry.pools.iter().find(|pool| pool.size == size) {
            Some(pool) => pool.spare().saturating_add(new),
            None if size == PageSize::SMALL => new,
            None => 0,
        }
    }

    /// Memory a node can give in pages of that size.
    pub(crate) fn amount(&self, node: u32, size: PageSize) -> Bytes {
        size.bytes().times(self.pages(node, size))
    }

    /// Memory that can become guest memory on a node, pools aside; `None` if unknown.
    pub(crate) fn room(&self, node: u32) -> Option<Bytes> {
        self.node(node).and_then(|entry| entry.room)
    }

    /// What is kept free on a node.
    pub(crate) fn reserve(&self, node: u32) -> Bytes {
        self.node(node).map_or(Bytes::ZERO, |entry| entry.reserve)
    }

    /// Spreads pages over nodes in their order, as many as each can give; `None` if they cannot give all.
    pub(crate) fn spread(&self, nodes: impl Iterator<Item = u32>, size: PageSize, pages: u64) -> Option<Vec<Share>> {
        let mut left = pages;
        let mut shares = Vec::new();
        for node in nodes {
            let share = self.pages(node, size).min(left);
            if share > 0 {
                shares.push((node, share));
                left -= share;
            }
            if left == 0 {
                break;
            }
        }
        (left == 0).then_some(shares)
    }

    /// Gives the pages away.
    pub(crate) fn take(&mut self, shares: &[Share], size: PageSize) {
        for (node, pages) in shares {
            let Some(entry) = self.nodes.get_mut(node) else { continue };
            let pool = entry.pools.iter_mut().find(|pool| pool.size == size);
            let from_pool = pool.map_or(0, |pool| {
                let spare = pool.spare().min(*pages);
                pool.planned = pool.planned.saturating_add(*pages);
                spare
            });
            entry.room = entry.room.map(|room| room.less(size.bytes().times(pages - from_pool)));
        }
    }

    /// The pools the plan needs, by node and size. Pools only grow: spare pages may be meant for a guest that is shut
    /// down now.
    pub(crate) fn pool_changes(&self) -> Vec<PoolChange> {
        let of_node = |(node, entry): (&u32, &NodeMemory)| {
            let node = *node;
            let needed = entry.pools.iter().filter(|pool| pool.planned > 0).map(move |pool| PoolChange {
                node,
                size: pool.size,
                before: pool.before,
                after: pool.before.max(pool.others.saturating_add(pool.planned)),
            });
            needed.collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }
}
