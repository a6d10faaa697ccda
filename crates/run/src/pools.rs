//! Hugepages that a run adds to pools for the time it lives.
//!
//! What will be added is written down before it is added, and all of it happens while the run has the turn. So whoever
//! finds a reservation that says [`State::Growing`] knows that nobody has changed the pool since, and sets it back to what
//! it was; of a pool that has grown, as many pages are taken away again.

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
        claim.amend(|own| own.pools.push(Growth { node, size, before, after, state: State::Growing }))?;
        resize_pool(kernel, node, size, after, patience)?;
        claim.amend(|own| own.pools.iter_mut().for_each(|growth| growth.state = State::Grown))?;
    }
    Ok(())
}

/// Takes away again what was added. Pages that somebody uses meanwhile stay: they become surplus and go with their user.
///
/// # Errors
/// A pool cannot be read or written.
pub fn give_back(kernel: &dyn Kernel, growths: &[Growth], patience: Duration) -> Result<(), RunError> {
    for growth in growths.iter().rev() {
        let now = persistent_pages(kernel, growth.node, growth.size)?;
        let wanted = match growth.state {
            State::Growing => growth.before.min(now),
            State::Grown => now.saturating_sub(growth.after - growth.before.min(growth.after)),
        };
        if wanted < now {
            resize_pool(kernel, growth.node, growth.size, wanted, patience)?;
        }
    }
    Ok(())
}
