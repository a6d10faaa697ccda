//! Whether changes to devices still hold: one check for each.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_units::PciAddress;

use super::link::Link;
use super::{card, driver};
use crate::ChangeError;
use crate::change::Change;
use crate::device_state::{BoundDriver, Card, DriverState, VfState};
use crate::journal::{Transaction, changed_later};
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::modules;
use crate::timestamp;
use crate::verify::{Check, CheckKind, VERIFICATION_SCHEMA, Verification};

/// Looks at everything a transaction of devices changed that no later one of `all` has changed again; `None` for one that
/// is not of devices, or has nothing left.
pub fn held(machine: &mut Machine<'_>, transaction: &Transaction, all: &[Transaction]) -> Option<Verification> {
    let task = transaction.header.purpose.devices()?;
    let again: Vec<String> = changed_later(transaction, all).into_iter().map(Change::object).collect();
    let steps = transaction.steps.iter().filter(|step| !again.contains(&step.change.object()));
    // The module comes and goes with the driver it was loaded for.
    let kept = transaction.steps.iter().any(|step| step.change.is_of_devices() && step.change.is_made_again_at_boot());
    let mut checks = Vec::new();
    for step in steps {
        let check = match step.boot_id != machine.boot_id && !kept {
            true => Some(Check::cannot_tell(
                CheckKind::Device,
                step.change.object(),
                "as set",
                "the restart of the machine undid it, since it was made without --persist",
            )),
            false => {
                checks.extend(check(machine, &step.change));
                link(machine, &step.change)
            }
        };
        checks.extend(check);
    }
    (!checks.is_empty())
        .then(|| verification(&format!("devices of transaction {}: {}", transaction.number(), task.task), checks))
}

/// Functions that transactions in force keep for guests in the boot with this identifier: bound alone, or with their card's virtual
/// functions. Of several on one function the last word counts: it may have been given back since.
pub fn set_aside(kernel: &dyn Kernel, all: &[Transaction], boot_id: &str) -> BTreeSet<PciAddress> {
    let steps = all.iter().filter(|transaction| transaction.is_in_force()).flat_map(|transaction| &transaction.steps);
    let mut kept = BTreeMap::new();
    let mut by_their_card = BTreeSet::new();
    for step in steps.filter(|step| step.done && !step.undone) {
        let is_lost = step.boot_id != boot_id && !step.change.is_made_again_at_boot();
        match &step.change {
            // What the boot undid does not count against what it made with the card's functions.
            Change::Driver { card, .. } if is_lost && by_their_card.contains(&card.function) => {}
            Change::Driver { card, new, .. } => {
                kept.insert(card.function, new.bound.is_vfio() && !is_lost);
                by_their_card.remove(&card.function);
            }
            Change::VirtualFunctions { card, new, .. } if !is_lost => {
                for (function, own) in
                    card::addresses(kernel, card.function).unwrap_or_default().into_iter().zip(&new.functions)
                {
                    kept.insert(function, own.driver.is_kept_for_guests());
                    by_their_card.insert(function);
                }
            }
            _ => {}
        }
    }
    kept.into_iter().filter(|(_, kept)| *kept).map(|(function, _)| function).collect()
}

pub(super) fn of_changes(machine: &mut Machine<'_>, task: &str, changes: &[Change]) -> Verification {
    let checks = changes.iter().flat_map(|change| check(machine, change)).collect();
    verification(task, checks)
}

fn verification(guest: &str, checks: Vec<Check>) -> Verification {
    Verification {
        schema: VERIFICATION_SCHEMA.to_owned(),
        guest: guest.to_owned(),
        taken: timestamp::now(),
        checks,
        guest_view: None,
    }
}

/// One check, or one for each setting that is not as it was set.
fn check(machine: &mut Machine<'_>, change: &Change) -> Vec<Check> {
    let subject = change.object();
    let kernel = machine.kernel;
    let (planned, found) = match change {
        Change::VirtualFunctions { card, new, .. } => {
            let found = driver::is_there(kernel, card).and_then(|_| card::read(kernel, card.function));
            return functions(&subject, new, found);
        }
        Change::Driver { card, new, .. } => return vec![bound(kernel, &subject, card, new)],
        Change::LoadModule { module, .. } => {
            let word = |loaded: bool| if loaded { "loaded" } else { "not loaded" }.to_owned();
            (word(true), modules::is_loaded(kernel, module).map(word))
        }
        _ => return Vec::new(),
    };
    vec![match found {
        Ok(found) => {
            let equal = found == planned;
            Check::compared(CheckKind::Device, subject, planned, found, equal)
        }
        Err(error) => Check::cannot_tell(CheckKind::Device, subject, planned, error.to_string()),
    }]
}

/// What drives a function. Which driver the kernel chose is shown, and that none took it: where the host has none for it, that is an
/// answer.
fn bound(kernel: &dyn Kernel, subject: &str, card: &Card, new: &DriverState) -> Check {
    let untold = |why: String| Check::cannot_tell(CheckKind::Device, subject, new.to_string(), why);
    match driver::is_there(kernel, card) {
        Ok(false) if new.bound == BoundDriver::Kernels => untold(format!("{} is gone", card.function)),
        Ok(false) => Check::compared(CheckKind::Device, subject, new.to_string(), "the function is gone", false),
        Ok(true) => match driver::driver(kernel, card.function) {
            Ok(found) => {
                Check::compared(CheckKind::Device, subject, new.to_string(), found.to_string(), new.is_met_by(&found))
            }
            Err(error) => untold(error.to_string()),
        },
        Err(error) => untold(error.to_string()),
    }
}

fn functions(subject: &str, new: &VfState, found: Result<VfState, ChangeError>) -> Vec<Check> {
    let whole = format!("{} as set", new.count());
    let found = match found {
        Ok(found) => found,
        Err(error) => return vec![Check::cannot_tell(CheckKind::Device, subject, whole, error.to_string())],
    };
    let wanted = new.clone().with_drivers_of(&found);
    let differences = wanted.differences(&found);
    if differences.is_empty() {
        return vec![Check::compared(CheckKind::Device, subject, whole.clone(), whole, true)];
    }
    let one = |(what, wanted, found): (String, String, String)| {
        Check::compared(CheckKind::Device, subject, format!("{what}: {wanted}"), format!("{what}: {found}"), false)
    };
    differences.into_iter().map(one).collect()
}

/// The link of a network card that has virtual functions: without it they have none. `None` for other changes.
fn link(machine: &mut Machine<'_>, change: &Change) -> Option<Check> {
    let Change::VirtualFunctions { card, new, .. } = change else { return None };
    if new.count() == 0 {
        return None;
    }
    let interface = card::interface(machine.kernel, card.function).ok().flatten()?;
    Some(Link::of(machine.kernel, &interface).check(CheckKind::Device, card.function, &interface))
}
