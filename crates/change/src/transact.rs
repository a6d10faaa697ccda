//! One transaction: its header, each change journalled before it is made, the read-back, the end; taken back on failure.

use std::time::Duration;

use crate::change::Change;
use crate::faults::Faults;
use crate::journal::{Journal, Purpose, Record, Writer, WriterLock};
use crate::machine::Machine;
use crate::perform::{Context, perform, stored_definition};
use crate::rollback::{self, RollbackOptions};
use crate::{ChangeError, new_domain, timestamp};

/// What is to be done, by whom.
pub(crate) struct Work<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) lock: &'a WriterLock,
    pub(crate) purpose: Purpose,
    pub(crate) changes: &'a [Change],
    pub(crate) shutdown_timeout: Duration,
    /// Everything is taken back if the read-back finds something else than wanted.
    pub(crate) rollback_on_mismatch: bool,
    pub(crate) faults: &'a Faults,
}

/// What came of it.
pub(crate) struct Transacted<T> {
    pub(crate) transaction: u32,
    pub(crate) read_back: T,
    /// Whether a mismatch led to a rollback.
    pub(crate) taken_back: bool,
}

/// Refuses where no transaction can begin: without rights, or beside one that did not end.
pub(crate) fn may_begin(machine: &Machine<'_>, journal: &Journal) -> Result<(), ChangeError> {
    // Before anything else: without it neither the journal nor the kernel's files can be read.
    if !machine.surroundings.is_root {
        return Err(ChangeError::Preconditions { problems: vec!["run this as root".to_owned()] });
    }
    if let Some(unfinished) = journal.unfinished()? {
        let started = unfinished.header.started.clone();
        return Err(ChangeError::Unfinished { transaction: unfinished.number(), started });
    }
    Ok(())
}

/// Makes the changes of one transaction; `read_back` counts what is not as wanted afterwards.
pub(crate) fn transact<T>(
    machine: &mut Machine<'_>,
    work: Work<'_>,
    say: &mut dyn FnMut(&str),
    read_back: impl FnOnce(&mut Machine<'_>) -> (usize, T),
) -> Result<Transacted<T>, ChangeError> {
    let faults = work.faults;
    faults.point("begin:before-header")?;
    let mut writer = work.journal.begin(work.lock, &machine.boot_id, &machine.host, work.purpose.clone())?;
    faults.point("begin:header-written")?;
    let transaction = writer.transaction();
    match make(machine, &mut writer, &work, say) {
        Ok(()) => {}
        // A crash, as far as this process can act one: nothing is cleaned up.
        Err(error @ ChangeError::Fault { .. }) => return Err(error),
        Err(cause) => {
            drop(writer);
            say(&format!("failed: {cause}"));
            return Err(take_back(machine, &work, transaction, cause, say));
        }
    }
    faults.point("end:before-read-back")?;
    let (mismatches, read_back) = read_back(machine);
    faults.point("end:before-commit")?;
    writer.append(&Record::Committed { at: timestamp::now(), mismatches })?;
    faults.point("end:committed")?;
    drop(writer);
    let mut taken_back = false;
    if mismatches > 0 && work.rollback_on_mismatch {
        say("the read-back found mismatches: rolling back");
        undo(machine, &work, transaction, say)?;
        taken_back = true;
    }
    Ok(Transacted { transaction, read_back, taken_back })
}

fn make(
    machine: &mut Machine<'_>,
    writer: &mut Writer,
    work: &Work<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<(), ChangeError> {
    let faults = work.faults;
    for (change, step) in work.changes.iter().zip(1..) {
        let label = format!("{step}:{}", change.slug());
        say(&format!("{change}"));
        faults.point(format!("{label}:before-intent"))?;
        writer.append(&Record::Intent { step, change: change.clone() })?;
        faults.point(format!("{label}:intent-written"))?;
        let mut context =
            Context { faults, shutdown_timeout: work.shutdown_timeout, label: label.clone(), journal: (writer, step) };
        perform(machine, change, &mut context)?;
        faults.point(format!("{label}:made"))?;
        let found = match change {
            Change::DefineDomain { domain, .. } | Change::NewDomain { domain, .. } => {
                stored_definition(machine, domain)?
            }
            _ => None,
        };
        let fresh_nvram = matches!(change, Change::NewDomain { .. })
            && found.as_deref().is_some_and(|xml| new_domain::nvram_is_fresh(machine, xml));
        writer.append(&Record::Done { step, found, fresh_nvram })?;
        faults.point(format!("{label}:done-written"))?;
    }
    Ok(())
}

fn undo(
    machine: &mut Machine<'_>,
    work: &Work<'_>,
    transaction: u32,
    say: &mut dyn FnMut(&str),
) -> Result<(), ChangeError> {
    // A plan: the user allowed as many restarts as apply needed, and taking back needs no more than that. Cures restart
    // nothing, so a guest that someone else has started meanwhile runs on.
    let restart = work.purpose.plan().is_some();
    let options = RollbackOptions {
        transaction: Some(transaction),
        restart,
        keep_running: !restart,
        shutdown_timeout: work.shutdown_timeout,
    };
    rollback::rollback_locked(machine, work.journal, work.lock, &options, &Faults::none(), say).map(|_| ())
}

fn take_back(
    machine: &mut Machine<'_>,
    work: &Work<'_>,
    transaction: u32,
    cause: ChangeError,
    say: &mut dyn FnMut(&str),
) -> ChangeError {
    let cause = Box::new(cause);
    match undo(machine, work, transaction, say) {
        Ok(()) => ChangeError::TakenBack { cause, transaction },
        Err(second) => ChangeError::NotTakenBack { cause, second: Box::new(second), transaction },
    }
}
