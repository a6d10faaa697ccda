//! What the boot unit does: makes again, from the journal, what the reboot undid.

use crate::change::Change;
use crate::journal::{Journal, Record, State, Transaction};
use crate::kernel::persistent_pages;
use crate::machine::Machine;
use crate::pools::resize_pool;
use crate::value::present;
use crate::{ChangeError, devices, modules, perform};

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
/// The value this boot began with is journalled first, so that a rollback in this boot restores that one.
pub fn reapply(machine: &mut Machine<'_>, journal: &Journal) -> Result<Vec<Reapplied>, ChangeError> {
    let lock = journal.lock()?;
    let mut done = Vec::new();
    let all = journal.transactions()?;
    for transaction in &all {
        if !matches!(transaction.state, State::Committed { .. }) {
            continue;
        }
        for step in transaction.steps.iter().filter(|step| step.done) {
            // In this boot already: the unit was started by hand.
            if !step.change.is_made_again_at_boot() || step.boot_id == machine.boot_id {
                continue;
            }
            // Fewer virtual functions since, or none: the last word counts.
            if step.change.is_of_devices() && has_later(&all, transaction, &step.change) {
                continue;
            }
            let old = match &step.change {
                Change::HugepagePool { node, size, .. } => {
                    persistent_pages(machine.kernel, *node, *size).map(|now| now.to_string())
                }
                Change::SysfsValue { path, .. } => present(machine.kernel, path),
                Change::LoadModule { module, .. } => modules::is_loaded(machine.kernel, module)
                    .map(|loaded| if loaded { "loaded" } else { "not loaded" }.to_owned()),
                Change::VirtualFunctions { card, .. } => {
                    devices::step::before_virtual_functions(machine.kernel, card, machine.patience)
                }
                Change::Driver { card, .. } => devices::step::before_driver(machine.kernel, card, machine.patience),
                _ => continue,
            };
            let result = old.and_then(|old| {
                let mut writer = journal.resume(&lock, transaction.number())?;
                let boot_id = machine.boot_id.clone();
                writer.append(&Record::Reapplying { step: step.number, boot_id, old })?;
                match &step.change {
                    Change::HugepagePool { node, size, new, .. } => {
                        resize_pool(machine.kernel, *node, *size, *new, machine.patience)
                    }
                    Change::LoadModule { module, .. } => modules::load(machine.kernel, module),
                    Change::SysfsValue { path, new, .. } => perform::set_value(machine, path, new),
                    Change::VirtualFunctions { card, new, .. } => {
                        devices::card::bring(machine.kernel, card.function, new)
                    }
                    Change::Driver { card, new, .. } => devices::driver::set_driver(machine.kernel, card.function, new),
                    _ => Ok(()),
                }
            });
            done.push(Reapplied { transaction: transaction.number(), change: step.change.clone(), result });
        }
    }
    Ok(done)
}

/// Whether a later transaction that is in force changed the same thing.
fn has_later(all: &[Transaction], transaction: &Transaction, change: &Change) -> bool {
    let object = change.object();
    let mut later = all.iter().filter(|other| other.number() > transaction.number() && other.is_committed());
    later.any(|other| other.steps.iter().any(|step| step.change.object() == object))
}
