//! Giving back: what a run has at its end, and what runs had that were killed.

use std::time::Duration;

use nearmetal_change::Kernel;
use nearmetal_hypervisor::{Hypervisor, HypervisorError, Nvram};
use nearmetal_place::PoolChange;

use crate::RunError;
use crate::pools::{give_back, grow};
use crate::reservation::{Claim, Desk, Reservation, Turn};

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

/// Gives back what dead runs left. The caller has the turn.
///
/// # Errors
/// The reservations cannot be read.
pub fn recover(
    turn: &Turn,
    kernel: &dyn Kernel,
    hypervisor: &mut dyn Hypervisor,
    patience: Duration,
) -> Result<Recovered, RunError> {
    let mut recovered = Recovered::default();
    for seen in turn.look()?.into_iter().filter(|seen| !seen.held) {
        if let Some(dead) = &seen.reservation {
            if let Err(error) = given_back(dead, kernel, hypervisor, patience) {
                recovered
                    .problems
                    .push(format!("the run `{}` ended without giving back what it had: {error}", dead.name));
                continue;
            }
            recovered.names.push(dead.name.clone());
        }
        turn.forget(&seen)?;
    }
    Ok(recovered)
}

fn given_back(
    dead: &Reservation,
    kernel: &dyn Kernel,
    hypervisor: &mut dyn Hypervisor,
    patience: Duration,
) -> Result<(), RunError> {
    end_guest(hypervisor, &dead.name, &dead.uuid)?;
    give_back(kernel, &dead.pools, patience)
}

/// Takes what a reservation says, and the pages that its plan needs more of. The caller has the turn.
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
        if give_back(kernel, &claim.reservation().pools, patience).is_ok() {
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
pub fn release(desk: &Desk, claim: Claim, kernel: &dyn Kernel, patience: Duration) -> Result<(), RunError> {
    // Nobody plans with pages that are about to go.
    let _turn = desk.turn()?;
    give_back(kernel, &claim.reservation().pools, patience)?;
    claim.release()
}
