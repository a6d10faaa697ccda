//! What transactions share, and what goes with the last of them that needs it: the boot unit and libvirt's qemu hook.
//!
//! The first transaction that needs one installs it, and its step says what was there before. Transactions are taken back in any
//! order, so the one that goes last may have no such step of its own.

use crate::change::Change;
use crate::journal::Transaction;
use crate::machine::Machine;
use crate::plan_file::PlanFile;
use crate::rollback::is_lost_at_boot;
use crate::{ChangeError, boot_unit, qemu_hook};

/// What other transactions in force need, and so stays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed {
    /// The boot unit.
    pub(crate) unit: bool,
    /// libvirt's qemu hook.
    pub(crate) hook: bool,
}

impl Needed {
    /// What all but `transaction` need.
    pub(crate) fn by_others(all: &[Transaction], transaction: &Transaction) -> Self {
        let mut others = all.iter().filter(|other| other.number() != transaction.number() && other.is_committed());
        Self { unit: others.clone().any(is_lost_at_boot), hook: others.any(needs_hook) }
    }

    /// Takes away what `transaction` needed last, where an earlier one had installed it; one sentence for each.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub(crate) fn leave<'a>(
        self,
        machine: &Machine<'_>,
        all: &'a [Transaction],
        transaction: &Transaction,
    ) -> Result<Vec<String>, ChangeError> {
        let mut notes = Vec::new();
        let unit = boot_unit::installed(machine)?.filter(|text| boot_unit::is_ours(text));
        if unit.is_some() && !self.unit && is_lost_at_boot(transaction) {
            let old = |change: &'a Change| match change {
                Change::BootUnit { old, .. } => Some(old.as_deref()),
                _ => None,
            };
            notes.push(undo_unit(machine, former(all, transaction, old, boot_unit::is_ours), false)?);
        }
        let hook = qemu_hook::installed(&machine.hook_directory)?.filter(|text| qemu_hook::is_ours(text));
        if hook.is_some() && !self.hook && needs_hook(transaction) {
            let old = |change: &'a Change| match change {
                Change::QemuHook { old, .. } => Some(old.as_deref()),
                _ => None,
            };
            notes.push(undo_hook(machine, former(all, transaction, old, qemu_hook::is_ours), false)?);
        }
        Ok(notes)
    }
}

/// Whether a transaction's guests have pins that only the hook sets.
fn needs_hook(transaction: &Transaction) -> bool {
    transaction.header.purpose.plan().is_some_and(PlanFile::needs_hook)
}

/// What was there before ours: by the newest step before `transaction` that found something else than ours, or nothing.
fn former<'a>(
    all: &'a [Transaction],
    transaction: &Transaction,
    old: impl Fn(&'a Change) -> Option<Option<&'a str>>,
    is_ours: fn(&str) -> bool,
) -> Option<&'a str> {
    let earlier = all.iter().rev().filter(|other| other.number() < transaction.number());
    let steps = earlier.flat_map(|other| other.steps.iter().rev());
    steps.filter_map(|step| old(&step.change)).find(|old| !old.is_some_and(is_ours)).flatten()
}

/// Takes the hook away, or gives it its former text again.
pub(crate) fn undo_hook(machine: &Machine<'_>, old: Option<&str>, needed: bool) -> Result<String, ChangeError> {
    if needed {
        return Ok("libvirt's qemu hook stays: another transaction needs it".to_owned());
    }
    match old {
        Some(old) if !qemu_hook::is_ours(old) => {
            qemu_hook::install(machine, old)?;
            Ok("libvirt's qemu hook has its former text again".to_owned())
        }
        _ => {
            qemu_hook::remove(machine)?;
            Ok("removed libvirt's qemu hook".to_owned())
        }
    }
}

/// The same of the boot unit.
pub(crate) fn undo_unit(machine: &Machine<'_>, old: Option<&str>, needed: bool) -> Result<String, ChangeError> {
    if needed {
        return Ok("the boot unit stays: another transaction needs it".to_owned());
    }
    match old {
        // One of ours is there because of a transaction that has been taken back since, or of another version.
        Some(old) if !boot_unit::is_ours(old) => {
            boot_unit::install(machine, old)?;
            Ok("the boot unit has its former text again".to_owned())
        }
        _ => {
            boot_unit::remove(machine)?;
            Ok("removed the boot unit".to_owned())
        }
    }
}
