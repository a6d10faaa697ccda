//! One change to a device in the hands of apply, rollback and the boot unit.

use std::thread::sleep;
use std::time::Duration;

use super::card;
use super::driver::{driver, is_there, set_driver};
use crate::ChangeError;
use crate::device_state::{BoundDriver, Card, DriverState, VfState};
use crate::kernel::Kernel;

/// How long a card may take to get its driver after a boot, and how often it is looked at.
const DRIVER_PATIENCE: Duration = Duration::from_secs(30);
const DRIVER_STEP: Duration = Duration::from_millis(200);

/// Restores the virtual functions a card had; the sentence says what was done.
pub(crate) fn undo_virtual_functions(kernel: &dyn Kernel, card: &Card, old: &VfState) -> Result<String, ChangeError> {
    let function = card.function;
    if !is_there(kernel, card)? {
        return Ok(format!("{function} is gone now, and its virtual functions with it"));
    }
    let now = card::count(kernel, function)?;
    card::bring(kernel, function, old)?;
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
    Ok(format!("{function} has {old} again (it had {now})"))
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
    text(&driver(kernel, card.function)?)
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
