//! A function that host and guest take turns on within one experiment.
//!
//! No transaction: whoever takes turns writes down what was before, gives the function back itself, and does so after it
//! was killed, too. What keeps a function from a guest is the same as for [`super::plan_bind`].

use nearmetal_host::Host;
use nearmetal_host::assignable::{Obstacle, examine};
use nearmetal_host::ledger::Ledger;
use nearmetal_units::PciAddress;

use super::bind::held_drives;
use super::driver;
use crate::ChangeError;
use crate::device_state::{Card, DriverState};
use crate::kernel::Kernel;

/// What a function is and what drives it now.
///
/// # Errors
/// There is no such function, or the kernel does not say.
pub fn function_now(kernel: &dyn Kernel, function: PciAddress) -> Result<(Card, DriverState), ChangeError> {
    Ok((driver::card(kernel, function)?, driver::driver(kernel, function)?))
}

/// Gives a function this driver and reads it back; one that is gone since is left alone.
///
/// # Errors
/// Another device is in its place, it is in use, or no driver took it.
pub fn hand_to(kernel: &dyn Kernel, card: &Card, wanted: &DriverState) -> Result<(), ChangeError> {
    if driver::is_there(kernel, card)? { driver::set_driver(kernel, card.function, wanted) } else { Ok(()) }
}

/// Everything that keeps a function from taking turns, each with what to do; empty if nothing does.
///
/// # Errors
/// The machine cannot be asked.
pub fn in_the_way(
    kernel: &dyn Kernel,
    host: &Host,
    ledger: &Ledger,
    function: PciAddress,
) -> Result<Vec<String>, ChangeError> {
    let Some(found) = examine(host, ledger).into_iter().find(|one| one.function == function) else {
        return Ok(vec![format!("guests cannot have {function}: `nearmetal device list` shows what they can have")]);
    };
    if let Some(owner) = &found.guest {
        return Ok(vec![format!("the guest `{}` has {function}: shut it down first", owner.name)]);
    }
    let mut obstacles = found.obstacles.clone();
    if !obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::Mounted { .. } | Obstacle::Stacked { .. })) {
        obstacles.extend(held_drives(kernel, host, function)?);
    }
    let mut problems: Vec<String> =
        obstacles.iter().map(|obstacle| format!("cannot give {function} to guests: {obstacle}")).collect();
    if problems.is_empty() {
        problems.extend(driver::user(kernel, function)?.map(|user| {
            format!(
                "cannot give {function} to guests: \
            {user}"
            )
        }));
    }
    Ok(problems)
}
