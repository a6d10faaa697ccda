//! What the boot unit does: makes again, from the journal, what the reboot undid.

use nearmetal_units::PciAddress;

use crate::change::Change;
use crate::journal::{Journal, Record, Step, Transaction, changed_later};
use crate::kernel::persistent_pages;
use crate::machine::Machine;
use crate::pools::resize_pool;
use crate::value::{present, same_value};
use crate::{ChangeError, devices, modules, perform};

/// What the journal keeps of a module that is there ([`Record::Reapplying`]).
const LOADED: &str = "loaded";

/// One change that was made again, or was not.
#[derive(Debug)]
pub struct Reapplied {
    /// The transaction it belongs to.
    pub transaction: u32,
    /// The change.
    pub change: Change,
    /// What became of it.
    pub result: Result<(), ChangeError>,
}

/// Makes the volatile changes of all committed transactions again, oldest first. One that fails does not keep the
/// others back: a guest whose pool is too small fails to start, the others need not.
///
/// The value this boot began with is journalled first, so that a rollback in this boot restores that one. Started once more in the
/// same boot, it makes what it did not get done: it was killed, or a pool found no memory. What `apply` made in this boot stays as
/// it is.
pub fn reapply(machine: &mut Machine<'_>, journal: &Journal) -> Result<Vec<Reapplied>, ChangeError> {
    let lock = journal.lock()?;
    let mut done = Vec::new();
    let all = journal.transactions()?;
    for transaction in all.iter().filter(|transaction| transaction.is_committed()) {
        for step in transaction.steps.iter().filter(|step| step.done && step.change.is_made_again_at_boot()) {
            let change = &step.change;
            let once_more = step.boot_id == machine.boot_id;
            if once_more && !step.made_again {
                continue;
            }
            // The last word counts: of devices whatever became of it (fewer virtual functions since, or none), of the rest where
            // it was said in this boot.
            let mut later = later_on_the_same_object(&all, transaction, change);
            if later.any(|later| change.is_of_devices() || later.boot_id == machine.boot_id) {
                continue;
            }
            let result = match once_more {
                true => match left_to_make(machine, &all, transaction, change) {
                    Ok(None) => continue,
                    Ok(Some(left)) => make(machine, &left),
                    Err(error) => Err(error),
                },
                false => before(machine, change).and_then(|old| {
                    let boot_id = machine.boot_id.clone();
                    let mut writer = journal.resume(&lock, transaction.number())?;
                    writer.append(&Record::Reapplying { step: step.number, boot_id, old })?;
                    make(machine, change)
                }),
            };
            done.push(Reapplied { transaction: transaction.number(), change: change.clone(), result });
        }
    }
    Ok(done)
}

/// What of a change this boot has not got done; `None` if it is as it was to be made. What guests have by now stays theirs, and
/// a function's driver with whom a later transaction gave it to.
fn left_to_make(
    machine: &Machine<'_>,
    all: &[Transaction],
    transaction: &Transaction,
    change: &Change,
) -> Result<Option<Change>, ChangeError> {
    let mut left = change.clone();
    if let Change::VirtualFunctions { card, new, .. } = &mut left {
        let bound = |change: &Change| match change {
            Change::Driver { card, .. } => Some(card.function),
            _ => None,
        };
        let bound: Vec<PciAddress> = changed_later(transaction, all).into_iter().filter_map(bound).collect();
        **new = devices::step::still_wanted(machine.kernel, card, new, &bound)?;
    }
    let found = before(machine, &left)?;
    Ok((!is_made(&left, &found)).then_some(left))
}

/// What is there before a change is made again, as the journal keeps it.
fn before(machine: &Machine<'_>, change: &Change) -> Result<String, ChangeError> {
    match change {
        Change::HugepagePool { node, size, .. } => {
            persistent_pages(machine.kernel, *node, *size).map(|now| now.to_string())
        }
        Change::SysfsValue { path, .. } => present(machine.kernel, path),
        Change::LoadModule { module, .. } => modules::is_loaded(machine.kernel, module)
            .map(|loaded| if loaded { LOADED } else { "not loaded" }.to_owned()),
        Change::VirtualFunctions { card, .. } => {
            devices::step::before_virtual_functions(machine.kernel, card, machine.patience)
        }
        Change::Driver { card, .. } => devices::step::before_driver(machine.kernel, card, machine.patience),
        other => Err(not_at_boot(other)),
    }
}

/// Whether what is there is what a change was to make of it.
fn is_made(change: &Change, found: &str) -> bool {
    match change {
        // One that was to grow and is larger has been grown since, for a guest that may be in it.
        Change::HugepagePool { old, new, .. } => {
            found.parse::<u64>().is_ok_and(|found| found == *new || (found > *new && old <= new))
        }
        Change::SysfsValue { path, new, .. } => same_value(path, found, new),
        Change::LoadModule { .. } => found == LOADED,
        Change::VirtualFunctions { new, .. } => {
            serde_json::from_str(found).is_ok_and(|found| new.difference(&found).is_none())
        }
        Change::Driver { new, .. } => serde_json::from_str(found).is_ok_and(|found| new.is_met_by(&found)),
        _ => false,
    }
}

fn make(machine: &mut Machine<'_>, change: &Change) -> Result<(), ChangeError> {
    match change {
        Change::HugepagePool { node, size, new, .. } => {
            resize_pool(machine.kernel, *node, *size, *new, machine.patience)
        }
        Change::LoadModule { module, .. } => modules::load(machine.kernel, module),
        Change::SysfsValue { path, new, .. } => perform::set_value(machine, path, new),
        Change::VirtualFunctions { card, new, .. } => devices::card::bring(machine.kernel, card.function, new),
        Change::Driver { card, new, .. } => devices::driver::set_driver(machine.kernel, card.function, new),
        other => Err(not_at_boot(other)),
    }
}

fn not_at_boot(change: &Change) -> ChangeError {
    ChangeError::Kernel(format!("cannot make `{change}` again at boot"))
}

/// What later transactions that are in force did to the same thing.
fn later_on_the_same_object<'a>(
    all: &'a [Transaction],
    transaction: &Transaction,
    change: &Change,
) -> impl Iterator<Item = &'a Step> {
    let (number, object) = (transaction.number(), change.object());
    let later = all.iter().filter(move |other| other.number() > number && other.is_committed());
    later.flat_map(|other| &other.steps).filter(move |step| step.change.object() == object)
}
