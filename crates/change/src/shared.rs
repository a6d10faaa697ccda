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

/// What several transactions may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shared {
    /// The unit that makes again at boot what a reboot loses.
    BootUnit,
    /// libvirt's qemu hook, which sets after every start what libvirt has no element for.
    QemuHook,
}

/// What is in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Ours, and it is run when its time comes.
    InForce,
    /// Ours, and nothing runs it: a unit that is not enabled, a hook that nobody may execute.
    Idle,
    /// Another one of that name; for a unit also none but the name (`systemctl mask`).
    Foreign,
    /// None.
    Missing,
}

impl Shared {
    /// Both.
    const ALL: [Self; 2] = [Self::BootUnit, Self::QemuHook];

    /// Its name in a sentence.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BootUnit => "the boot unit",
            Self::QemuHook => "libvirt's qemu hook",
        }
    }

    /// What a change found in its place; `None` for a change of something else.
    fn found(self, change: &Change) -> Option<Option<&str>> {
        match (self, change) {
            (Self::BootUnit, Change::BootUnit { old, .. }) | (Self::QemuHook, Change::QemuHook { old, .. }) => {
                Some(old.as_deref())
            }
            _ => None,
        }
    }

    fn is_ours(self, text: &str) -> bool {
        match self {
            Self::BootUnit => boot_unit::is_ours(text),
            Self::QemuHook => qemu_hook::is_ours(text),
        }
    }

    fn installed(self, machine: &Machine<'_>) -> Result<Option<String>, ChangeError> {
        match self {
            Self::BootUnit => boot_unit::installed(machine),
            Self::QemuHook => qemu_hook::installed(&machine.hook_directory),
        }
    }

    fn is_needed_by(self, transaction: &Transaction) -> bool {
        match self {
            Self::BootUnit => is_lost_at_boot(transaction),
            Self::QemuHook => transaction.header.purpose.plan().is_some_and(PlanFile::needs_hook),
        }
    }

    /// Takes it away, or gives back what was there before; the sentence says what was done.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub(crate) fn undo(self, machine: &Machine<'_>, old: Option<&str>, needed: &Needed) -> Result<String, ChangeError> {
        let name = self.name();
        if needed.0.contains(&self) {
            return Ok(format!("{name} stays: another transaction needs it"));
        }
        if self.installed(machine)?.is_some_and(|text| !self.is_ours(&text)) {
            return Ok(format!("{name} has been replaced or masked since: left as it is"));
        }
        // One of ours was there because of a transaction that has been taken back since, or of another version.
        let Some(old) = old.filter(|old| !self.is_ours(old)) else {
            match self {
                Self::BootUnit => boot_unit::remove(machine)?,
                Self::QemuHook => qemu_hook::remove(machine)?,
            }
            return Ok(format!("removed {name}"));
        };
        match self {
            Self::BootUnit => boot_unit::install(machine, old)?,
            Self::QemuHook => qemu_hook::install(machine, old)?,
        }
        Ok(format!("{name} has its former text again"))
    }
}

/// What other transactions in force need, and so stays.
#[derive(Debug, Clone)]
pub(crate) struct Needed(Vec<Shared>);

impl Needed {
    /// What all but `transaction` need.
    pub(crate) fn by_others(all: &[Transaction], transaction: &Transaction) -> Self {
        let others = || all.iter().filter(|other| other.number() != transaction.number() && other.is_committed());
        let is_needed = |shared: &Shared| others().any(|other| shared.is_needed_by(other));
        Self(Shared::ALL.into_iter().filter(is_needed).collect())
    }

    /// Takes away what `transaction` needed last, where an earlier one had installed it; one sentence for each.
    ///
    /// # Errors
    /// A file cannot be written or removed.
    pub(crate) fn leave(
        &self,
        machine: &Machine<'_>,
        all: &[Transaction],
        transaction: &Transaction,
    ) -> Result<Vec<String>, ChangeError> {
        let mut notes = Vec::new();
        for shared in Shared::ALL.into_iter().filter(|shared| shared.is_needed_by(transaction)) {
            let is_ours = shared.installed(machine)?.is_some_and(|text| shared.is_ours(&text));
            if is_ours && !self.0.contains(&shared) {
                notes.push(shared.undo(machine, former(all, transaction, shared), self)?);
            }
        }
        Ok(notes)
    }
}

/// What was there before ours: by the newest step before `transaction` that found something else than ours, or nothing.
fn former<'a>(all: &'a [Transaction], transaction: &Transaction, shared: Shared) -> Option<&'a str> {
    let earlier = all.iter().rev().filter(|other| other.number() < transaction.number());
    let steps = earlier.flat_map(|other| other.steps.iter().rev());
    steps
        .filter_map(|step| shared.found(&step.change))
        .find(|old| !old.is_some_and(|old| shared.is_ours(old)))
        .flatten()
}
