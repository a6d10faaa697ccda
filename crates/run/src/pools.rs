//! Hugepages that a run adds to pools for the time it lives.
//!
//! What will be added is written down before it is added, and what a pool is set back to before it is set back; all of it
//! happens while the run has the turn. Whoever dies in between leaves a pool half-way ([`Growth::is_half_way`]), and an
//! absolute number of pages that it goes back to. [`crate::recover`] settles such pools before anybody changes one again,
//! so that the number still holds, and doing it twice does no more than once.

use std::time::Duration;

use nearmetal_change::{Kernel, persistent_pages, resize_pool};
use nearmetal_place::PoolChange;
use nearmetal_units::PageSize;
use serde::{Deserialize, Serialize};

use crate::RunError;
use crate::reservation::Claim;

/// Pages added to a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// Node.
    pub node: u32,
    /// Page size.
    pub size: PageSize,
    /// Persistent pages before.
    pub before: u64,
    /// Persistent pages after.
    pub after: u64,
    /// How far it is.
    pub state: State,
    /// Persistent pages that it is set back to, once that has begun.
    pub back_to: Option<u64>,
}

impl Growth {
    /// Whether somebody died while he changed the pool.
    pub(crate) fn is_half_way(&self) -> bool {
        self.state == State::Growing || self.back_to.is_some()
    }
}

/// How far a pool's growth is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Begun.
    Growing,
    /// Done.
    Grown,
}

/// Grows the pools that a plan needs larger, and writes down what has to be given back.
///
/// # Errors
/// The kernel does not give the pages. What was added until then is in the claim.
pub fn grow(kernel: &dyn Kernel, claim: &mut Claim, pools: &[PoolChange], patience: Duration) -> Result<(), RunError> {
    for pool in pools.iter().filter(|pool| pool.after > pool.before) {
        let PoolChange { node, size, after, .. } = *pool;
        let before = persistent_pages(kernel, node, size)?;
        if after <= before {
            continue;
        }
        claim
            .amend(|own| own.pools.push(Growth { node, size, before, after, state: State::Growing, back_to: None }))?;
        resize_pool(kernel, node, size, after, patience)?;
        claim.amend(|own| own.pools.iter_mut().for_each(|growth| growth.state = State::Grown))?;
    }
    Ok(())
}

/// Takes away again what was added. Pages that somebody uses meanwhile stay: they become surplus and go with their user.
/// A pool that is given back is no longer in the claim.
///
/// # Errors
/// A pool cannot be read or written, or the claim cannot: what is still in it can be tried again.
pub fn give_back(kernel: &dyn Kernel, claim: &mut Claim, patience: Duration) -> Result<(), RunError> {
    while let Some(growth) = claim.reservation().pools.last().cloned() {
        let now = persistent_pages(kernel, growth.node, growth.size)?;
        let wanted = growth.back_to.unwrap_or(match growth.state {
            State::Growing => growth.before,
            State::Grown => now.saturating_sub(growth.after - growth.before.min(growth.after)),
        });
        if wanted < now {
            claim.amend(|own| own.pools.iter_mut().rev().take(1).for_each(|last| last.back_to = Some(wanted)))?;
            resize_pool(kernel, growth.node, growth.size, wanted, patience)?;
        }
        claim.amend(|own| own.pools.truncate(own.pools.len().saturating_sub(1)))?;
    }
    Ok(())
}
