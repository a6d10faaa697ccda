//! Giving back: what a run has at its end, and what runs had that were killed.

use std::collections::BTreeSet;
use std::time::Duration;

use nearmetal_change::{Kernel, PinTarget};
use nearmetal_hypervisor::{Hypervisor, HypervisorError, Nvram};
use nearmetal_place::PoolChange;
use nearmetal_units::{CpuSet, PciAddress};

use crate::RunError;
use crate::function;
use crate::pools::{Growth, give_back, grow};
use crate::reservation::{Claim, Desk, Pools, Reservation, Said, Seen, Turn};

/// What was found of runs that are dead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Runs whose leftovers were given back.
    pub names: Vec<String>,
    /// What could not be given back, in words; it is tried again by the next run.
    pub problems: Vec<String>,
}

/// Ends a run's guest, if it is there: whether it runs, or is only stored.
///
/// # Errors
/// libvirt cannot be asked, or the guest is there still.
pub fn end_guest(hypervisor: &mut dyn Hypervisor, name: &str, uuid: &str) -> Result<(), RunError> {
    let domain = match hypervisor.domain(name) {
        Ok(domain) => domain,
        Err(HypervisorError::NoSuchDomain { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Somebody else's, who likes the name.
    if !domain.uuid.eq_ignore_ascii_case(uuid) {
        return Ok(());
    }
    // It may end by itself between two requests: what counts is that it is gone afterwards.
    let mut last = None;
    if !domain.state.is_off() {
        last = hypervisor.destroy(name).err();
    }
    if domain.persistent {
        last = hypervisor.undefine(name, Nvram::Remove).err().or(last);
    }
    match hypervisor.domain(name) {
        Err(HypervisorError::NoSuchDomain { .. }) => Ok(()),
        Ok(there) if !there.uuid.eq_ignore_ascii_case(uuid) => Ok(()),
        Ok(there) => Err(RunError::NotGivenBack {
            what: format!("the guest `{name}`"),
            reason: last.map_or_else(|| format!("it is {}", there.state), |error| error.to_string()),
        }),
        Err(error) => Err(last.unwrap_or(error).into()),
    }
}

/// How a dead run's guest is ended: by the libvirt that started it, or, where that died with the run, by its process.
pub type EndGuest<'a> = dyn FnMut(&Reservation) -> Result<(), RunError> + 'a;

/// Finishes what runs were killed at while they changed a pool: nobody may change one before. Their guests have not begun, or
/// are gone. Only of the own user: what another wrote into a reservation must not reach a pool. `all`: seen while the caller has the
/// pools.
fn settle(_: &Pools, all: &[Seen], kernel: &dyn Kernel, patience: Duration) -> Result<(), RunError> {
    for (seen, dead) in all.iter().filter_map(own_dead) {
        if dead.pools.iter().any(Growth::is_half_way) {
            give_back(kernel, &mut seen.adopt(dead.clone())?, patience)?;
        }
    }
    Ok(())
}

/// What a dead run of the own user says.
fn own_dead(seen: &Seen) -> Option<(&Seen, &Reservation)> {
    match &seen.said {
        Said::Whole(dead) if !seen.held && seen.is_own => Some((seen, dead)),
        _ => None,
    }
}

/// Gives back what dead runs of this user left. The caller has the turn. `set_aside`: functions that nearmetal was told to keep for
/// guests, which nobody is to bind to another driver.
///
/// # Errors
/// The reservations cannot be read, or a pool is half-way and cannot be settled.
pub fn recover(
    turn: &Turn,
    kernel: &dyn Kernel,
    end: &mut EndGuest<'_>,
    set_aside: &dyn Fn() -> BTreeSet<PciAddress>,
    patience: Duration,
) -> Result<Recovered, RunError> {
    // Seldom: users without root never have any.
    let has_pages = |seen: &Seen| own_dead(seen).is_some_and(|(_, dead)| !dead.pools.is_empty());
    let pools = if turn.look()?.iter().any(has_pages) { Some(turn.pools()?) } else { None };
    if let Some(pools) = &pools {
        settle(pools, &turn.look()?, kernel, patience)?;
    }
    let mut recovered = Recovered::default();
    let mut looks = function::LOOKS_OF_DEAD;
    for seen in turn.look()?.into_iter().filter(|seen| !seen.held && seen.is_own) {
        let dead = match &seen.said {
            Said::Nothing => {
                turn.forget(&seen)?;
                continue;
            }
            // It stays, and keeps others from choosing.
            Said::Unknown => continue,
            // It died after the look above: the next run gives it back, with the pools' lock.
            Said::Whole(dead) if pools.is_none() && !dead.pools.is_empty() => continue,
            Said::Whole(dead) => dead,
        };
        let set_aside = if dead.functions.is_empty() { BTreeSet::new() } else { set_aside() };
        match given_back(&seen, dead, kernel, end, &set_aside, (patience, &mut looks)) {
            Ok(()) => recovered.names.push(dead.name.clone()),
            Err(error) => recovered
                .problems
                .push(format!("the run `{}` ended without giving back what it had: {error}", dead.name)),
        }
    }
    Ok(recovered)
}

fn given_back(
    seen: &Seen,
    dead: &Reservation,
    kernel: &dyn Kernel,
    end: &mut EndGuest<'_>,
    set_aside: &BTreeSet<PciAddress>,
    (patience, looks): (Duration, &mut u32),
) -> Result<(), RunError> {
    end(dead)?;
    // A libvirt that does not know it may still have lost it alive.
    if kernel.affinity(&dead.uuid, PinTarget::Emulator)?.is_some() {
        let what = format!("the guest `{}`", dead.name);
        let reason = "libvirt does not know it, and its QEMU still runs: end that process".to_owned();
        return Err(RunError::NotGivenBack { what, reason });
    }
    let mut claim = seen.adopt(dead.clone())?;
    // Each whatever becomes of the other.
    let functions = function::give_back_in(kernel, &mut claim, set_aside, patience, looks);
    let pools = give_back(kernel, &mut claim, patience);
    let_go(claim, pools.and(functions), true)
}

/// Removes the reservation of a guest. If a function or a pool did not go back, it keeps what these are; of a guest that `is_gone` the
/// PUs are free for the next run, and so is the memory, unless a pool still has pages for it that nobody is to count on.
fn let_go(mut claim: Claim, back: Result<(), RunError>, is_gone: bool) -> Result<(), RunError> {
    let Err(error) = back else { return claim.release() };
    if !is_gone {
        return Err(error);
    }
    // Where that cannot be written, they stay taken.
    let _ = claim.amend(|own| {
        own.cpus = CpuSet::new();
        if own.pools.is_empty() {
            own.memory.clear();
        }
    });
    Err(error)
}

/// Removes what dead runs of other users left whose guest does not live, where it is root that has the turn: of functions and pools they
/// have none, and their users may never run again.
///
/// # Errors
/// The reservations cannot be read, or one cannot be removed.
pub fn forget_others(turn: &Turn, lives: &dyn Fn(&Reservation) -> bool) -> Result<(), RunError> {
    if !turn.is_roots() {
        return Ok(());
    }
    for seen in turn.look()?.into_iter().filter(|seen| !seen.held && !seen.is_own) {
        let is_gone = match &seen.said {
            Said::Nothing => true,
            // Of whose guest nothing is known.
            Said::Unknown => false,
            Said::Whole(dead) => !lives(dead),
        };
        if is_gone {
            turn.forget(&seen)?;
        }
    }
    Ok(())
}

/// Takes what a reservation says, and the pages that its plan needs more of. The caller has the turn, and has
/// [recovered](recover) with it.
///
/// # Errors
/// The reservation cannot be written, or the kernel does not give the pages: then all is given back.
pub fn take(
    turn: &Turn,
    kernel: &dyn Kernel,
    reservation: Reservation,
    pools: &[PoolChange],
    patience: Duration,
) -> Result<Claim, RunError> {
    let mut claim = turn.reserve(reservation)?;
    if !pools.iter().any(|pool| pool.after > pool.before) {
        return Ok(claim);
    }
    let grown = turn.pools().and_then(|_held| {
        let grown = grow(kernel, &mut claim, pools, patience);
        if grown.is_err() {
            // What fails here is tried again by the next run.
            let _ = give_back(kernel, &mut claim, patience);
        }
        grown
    });
    match grown {
        Ok(()) => Ok(claim),
        Err(error) => {
            // With pages in it, it stays for the next run.
            if claim.reservation().pools.is_empty() {
                let _ = claim.release();
            }
            Err(error)
        }
    }
}

/// Gives back a reservation whose guest is gone: functions and pools first, then the PUs.
///
/// # Errors
/// A function does not go back, a pool cannot be set, or the file cannot be removed. Then the reservation stays for these, and the next
/// run tries again.
pub fn release(desk: &Desk, mut claim: Claim, kernel: &dyn Kernel, patience: Duration) -> Result<(), RunError> {
    // Each whatever becomes of the other.
    let functions = function::give_back(kernel, &mut claim, patience);
    let pools = pools_back(desk, &mut claim, kernel, patience);
    // libvirt may have lost it alive.
    let is_gone = matches!(kernel.affinity(&claim.reservation().uuid, PinTarget::Emulator), Ok(None));
    let_go(claim, pools.and(functions), is_gone)
}

fn pools_back(desk: &Desk, claim: &mut Claim, kernel: &dyn Kernel, patience: Duration) -> Result<(), RunError> {
    if claim.reservation().pools.is_empty() {
        return Ok(());
    }
    // Without the turn, for which others could let it wait. Who plans meanwhile reads reservations before pools, and counts pages of
    // this run as taken.
    let pools = desk.pools()?;
    settle(&pools, &desk.look()?, kernel, patience)?;
    give_back(kernel, claim, patience)
}
