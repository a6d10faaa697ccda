//! Hugepage pools that are grown for guests of an experiment, and as they were.

use std::collections::BTreeMap;

use nearmetal_change::{POOL_PATIENCE, resize_pool};
use nearmetal_host::Host;
use nearmetal_place::{GuestCell, Placement};
use nearmetal_units::PageSize;

use super::Session;
use crate::error::MeasureError;
use crate::leftovers::PoolBefore;

impl Session<'_> {
    /// Room in the pools for that many planned clones beside what is in use; equal for all arms, since done before the
    /// first.
    pub(crate) fn grow_pools(&mut self, placement: &Placement, clones: u64) -> Result<(), MeasureError> {
        self.grow_pools_for(&[placement], clones)
    }

    /// The same for that many clones of each of several guests, which may share a node.
    pub(crate) fn grow_pools_for(&mut self, placements: &[&Placement], clones: u64) -> Result<(), MeasureError> {
        let mut needed: BTreeMap<(u32, PageSize), u64> = BTreeMap::new();
        for placement in placements {
            let memory = &placement.memory;
            let Some(size) = memory.page_size else { continue };
            for (node, pages) in shares(placement, size, clones) {
                let sum = needed.entry((node, size)).or_default();
                *sum = sum.saturating_add(pages);
            }
        }
        // Read anew, since guests may have come or gone; what a pool had before the first time is what it gets back.
        let host = Host::read(self.fs);
        for ((index, size), needed) in needed {
            let pool = host.node(index).and_then(|node| node.pool(size)).ok_or_else(|| {
                MeasureError::Unfit(format!("node {index} has no pool of {size} pages: does this kernel support them?"))
            })?;
            if pool.free >= needed {
                continue;
            }
            if !self.leftovers.pools.iter().any(|before| (before.node, before.size) == (index, size)) {
                self.leftovers.pools.push(PoolBefore { node: index, size, pages: pool.persistent() });
                self.leftovers.save()?;
            }
            resize_pool(self.fs, index, size, pool.persistent() + needed - pool.free, POOL_PATIENCE)?;
        }
        Ok(())
    }

    /// The pools as they were before they were grown the first time; the record stays, since they may be grown again.
    pub(crate) fn pools_as_before(&mut self) -> Result<(), MeasureError> {
        for pool in &self.leftovers.pools {
            resize_pool(self.fs, pool.node, pool.size, pool.pages, POOL_PATIENCE)?;
        }
        Ok(())
    }
}

/// Pages that so many clones take of each node.
fn shares(placement: &Placement, size: PageSize, clones: u64) -> Vec<(u32, u64)> {
    let memory = &placement.memory;
    if placement.cells.is_empty() {
        let nodes = memory.nodes.len().max(1) as u64;
        // Strict binding over several nodes fills them in turn; a clone needs an equal share of each at most.
        let each = memory.pages.saturating_mul(clones).div_ceil(nodes);
        return memory.nodes.iter().map(|node| (node, each)).collect();
    }
    // A cell is bound to its node, and is as large as it is.
    let of = |cell: &GuestCell| (cell.node, cell.memory.pages(size).saturating_mul(clones));
    placement.cells.iter().map(of).collect()
}
