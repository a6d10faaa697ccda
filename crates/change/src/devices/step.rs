//! One change to a device in the hands of apply, rollback and the boot unit.

use std::thread::sleep;
use std::time::Duration;

use nearmetal_units::PciAddress;

use super::card;
use super::driver::{directory, driver, is_there, set_driver, user};
use crate::ChangeError;
use crate::change::Change;
use crate::device_state::{BoundDriver, Card, DriverState, VfState};
use crate::kernel::Kernel;

/// How long a card may take to get its driver after a boot, and how often it is looked at.
const DRIVER_PATIENCE: Duration = Duration::from_secs(30);
const DRIVER_STEP: Duration = Duration::from_millis(200);

/// What keeps a change from being undone: functions that would be taken from whoever uses them. Empty for other changes.
pub(crate) fn users_in_the_way(kernel: &dyn Kernel, change: &Change) -> Result<Vec<String>, ChangeError> {
    let taken = match change {
        Change::VirtualFunctions { card, old, .. } if is_there(kernel, card)? => {
            let remade = card::count(kernel, card.function)? != old.count();
            if remade { card::addresses(kernel, card.function)? } else { Vec::new() }
        }
        Change::Driver { card, old, .. } if is_there(kernel, card)? => {
            let found = driver(kernel, card.function)?;
            let unbound = matches!(found.bound, BoundDriver::Named(_)) && found.bound != old.bound;
            if unbound && !old.is_met_by(&found) { vec![card.function] } else { Vec::new() }
        }
        _ => Vec::new(),
    };
    let mut users = Vec::new();
    for function in taken {
        users.extend(user(kernel, function)?.map(|user| format!("cannot take {function} away: {user}")));
    }
    Ok(users)
}

/// Restores the virtual functions a card had, before a change made them `new`; the sentence says what was done.
pub(crate) fn undo_virtual_functions(
    kernel: &dyn Kernel,
    card: &Card,
    old: &VfState,
    new: &VfState,
) -> Result<String, ChangeError> {
    let function = card.function;
    if !is_there(kernel, card)? {
        return Ok(format!("{function} is gone now, and its virtual functions with it"));
    }
    let now = card::count(kernel, function)?;
    let mut wanted = old.clone();
    if old.count() == new.count() {
        // Such a change leaves drivers alone, so whoever has changed them since is not undone here.
        wanted = wanted.with_drivers_of(&card::read(kernel, function)?);
    }
    card::bring(kernel, function, &wanted)?;
    Ok(format!("{function} is back to {} virtual functions (it had {now})", old.count()))
}

/// Gives a function the driver it had.
pub(crate) fn undo_driver(kernel: &dyn Kernel, card: &Card, old: &DriverState) -> Result<String, ChangeError> {
    let function = card.function;
    if !is_there(kernel, card)? {
        return Ok(format!("{function} is gone now, so its driver cannot be restored"));
    }
    let now = driver(kernel, function)?;
    set_driver(kernel, function, old)?;
    Ok(match old.bound {
        // The host may have no driver for it.
        BoundDriver::Kernels => {
            format!("{function} is the kernel's to bind again, and has {} (it had {now})", driver(kernel, function)?)
        }
        _ => format!("{function} has {old} again (it had {now})"),
    })
}

/// What the boot unit, started once more, still wants of a card's virtual functions: what guests have by now, and the drivers of those
/// that were `bound` on their own since, are left as they are.
pub(crate) fn still_wanted(
    kernel: &dyn Kernel,
    card: &Card,
    wanted: &VfState,
    bound: &[PciAddress],
) -> Result<VfState, ChangeError> {
    if !is_there(kernel, card)? {
        return Ok(wanted.clone());
    }
    card::but_for_others(kernel, card.function, wanted, &card::read(kernel, card.function)?, Some(bound))
}

/// What a card has before the boot unit makes its functions again, as the journal keeps it.
pub(crate) fn before_virtual_functions(
    kernel: &dyn Kernel,
    card: &Card,
    patience: Duration,
) -> Result<String, ChangeError> {
    // Drivers load while the unit runs; without its own a card can have no virtual functions.
    wait_for(kernel, card, patience, &|state| state.bound != BoundDriver::None)?;
    text(&card::read(kernel, card.function)?)
}

/// What a function has before the boot unit gives it its driver again.
pub(crate) fn before_driver(kernel: &dyn Kernel, card: &Card, patience: Duration) -> Result<String, ChangeError> {
    wait_for(kernel, card, patience, &|_| true)?;
    let mut state = driver(kernel, card.function)?;
    if state.bound == BoundDriver::None && !is_left_alone(kernel, card.function)? {
        // Its driver may not have been loaded yet, so early in the boot.
        state.bound = BoundDriver::Kernels;
    }
    text(&state)
}

/// The card of a virtual function; `None` of others, and of one that is gone.
pub(crate) fn physical_function(kernel: &dyn Kernel, function: PciAddress) -> Result<Option<PciAddress>, ChangeError> {
    let name = kernel.link_name(&format!("{}/physfn", directory(function)))?;
    Ok(name.and_then(|name| name.parse().ok()))
}

/// Whether the kernel gives a function no driver by itself: a virtual one of a card that is set so.
pub(super) fn is_left_alone(kernel: &dyn Kernel, function: PciAddress) -> Result<bool, ChangeError> {
    Ok(match physical_function(kernel, function)? {
        Some(physical) => card::autoprobe(kernel, physical)? == Some(false),
        None => false,
    })
}

fn text(state: &impl serde::Serialize) -> Result<String, ChangeError> {
    serde_json::to_string(state).map_err(|error| ChangeError::Kernel(error.to_string()))
}

/// `patience` of zero does not wait: tests have no time.
fn wait_for(
    kernel: &dyn Kernel,
    card: &Card,
    patience: Duration,
    ready: &dyn Fn(&DriverState) -> bool,
) -> Result<(), ChangeError> {
    let attempts = if patience.is_zero() { 1 } else { DRIVER_PATIENCE.as_millis() / DRIVER_STEP.as_millis() };
    for attempt in 0..attempts {
        if attempt > 0 {
            sleep(DRIVER_STEP);
        }
        if is_there(kernel, card)? && ready(&driver(kernel, card.function)?) {
            return Ok(());
        }
    }
    Err(ChangeError::Kernel(format!(
        "{} ({}) was not ready within {} s of the boot: check that its driver's module is installed",
        card.function,
        card.id,
        DRIVER_PATIENCE.as_secs()
    )))
}
