//! Giving back: what a run has at its end, and what runs had that were killed.

use std::time::Duration;

use nearmetal_change::{Kernel, PinTarget};
use nearmetal_hypervisor::{Hypervisor, HypervisorError, Nvram};
use nearmetal_place::PoolChange;

use crate::RunError;
use crate::pools::{Growth, give_back, grow};
use crate::reservation::{Claim, Desk, Reservation, Said, Seen, Turn};

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
/// are gone. Only of the own user: what another wrote into a reservation must not reach a pool. The caller has the turn.
fn settle(turn: &Turn, kernel: &dyn Kernel, patience: Duration) -> Result<(), RunError> {
    for seen in turn.look()?.into_iter().filter(|seen| !seen.held && seen.is_own) {
        let Said::Whole(dead) = &seen.said else { continue };
        if dead.pools.iter().any(Growth::is_half_way) {
            give_back(kernel, &mut turn.adopt(&seen, Reservation::clone(dead))?, patience)?;
        }
    }
    Ok(())
}

/// Gives back what dead runs of this user left. The caller has the turn.
///
/// # Errors
/// The reservations cannot be read, or a pool is half-way and cannot be settled.
pub fn recover(
    turn: &Turn,
    kernel: &dyn Kernel,
    end: &mut EndGuest<'_>,
    patience: Duration,
) -> Result<Recovered, RunError> {
    settle(turn, kernel, patience)?;
    let mut recovered = Recovered::default();
    for seen in turn.look()?.into_iter().filter(|seen| !seen.held && seen.is_own) {
        let dead = match &seen.said {
            Said::Nothing => {
                turn.forget(&seen)?;
                continue;
            }
            // It stays, and keeps others from choosing.
            Said::Unknown => continue,
            Said::Whole(dead) => dead,
        };
        match given_back(turn, &seen, dead, kernel, end, patience) {
            Ok(()) => recovered.names.push(dead.name.clone()),
            Err(error) => recovered
                .problems
                .push(format!("the run `{}` ended without giving back what it had: {error}", dead.name)),
        }
    }
    Ok(recovered)
}

fn given_back(
    turn: &Turn,
    seen: &Seen,
    dead: &Reservation,
    kernel: &dyn Kernel,
    end: &mut EndGuest<'_>,
    patience: Duration,
) -> Result<(), RunError> {
    end(dead)?;
    // A libvirt that does not know it may still have lost it alive.
    if kernel.affinity(&dead.uuid, PinTarget::Emulator)?.is_some() {
        let what = format!("the guest `{}`", dead.name);
        let reason = "libvirt does not know it, and its QEMU still runs: end that process".to_owned();
        return Err(RunError::NotGivenBack { what, reason });
    }
    let mut claim = turn.adopt(seen, dead.clone())?;
    give_back(kernel, &mut claim, patience)?;
    claim.release()
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
    if let Err(error) = grow(kernel, &mut claim, pools, patience) {
        // What fails here is tried again by the next run.
        if give_back(kernel, &mut claim, patience).is_ok() {
            let _ = claim.release();
        }
        return Err(error);
    }
    Ok(claim)
}

/// Gives back a reservation whose guest is gone: pools first, then the PUs.
///
/// # Errors
/// A pool cannot be set, or the file cannot be removed. Then the reservation stays, and the next run tries again.
pub fn release(desk: &Desk, mut claim: Claim, kernel: &dyn Kernel, patience: Duration) -> Result<(), RunError> {
    if claim.reservation().pools.is_empty() {
        return claim.release();
    }
    // Nobody plans with pages that are about to go.
    let turn = desk.turn()?;
    settle(&turn, kernel, patience)?;
    give_back(kernel, &mut claim, patience)?;
    claim.release()
}
