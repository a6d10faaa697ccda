//! Making the changes of a [`DevicePlan`], journalled.

use std::time::Duration;

use super::{DEVICES_SCHEMA, DevicePlan, DeviceTask, held};
use crate::ChangeError;
use crate::faults::Faults;
use crate::journal::{Journal, Purpose};
use crate::machine::Machine;
use crate::transact::{Transacted, Work, may_begin, transact};
use crate::verify::Verification;

/// Everything but the machine that [`carry_out`] works with.
pub struct DeviceJob<'a> {
    /// The journal.
    pub journal: &'a Journal,
    /// What was shown and agreed to.
    pub plan: &'a DevicePlan,
    /// Makes the plan again, with the journal's lock held: a guest may have started meanwhile.
    pub plan_again: &'a mut dyn FnMut(&mut Machine<'_>) -> Result<DevicePlan, ChangeError>,
    /// Where to die, in tests.
    pub faults: &'a Faults,
    /// Told what is being done.
    pub say: &'a mut dyn FnMut(&str),
}

/// Makes the changes. Gives the transaction's number and what the read-back found.
///
/// # Errors
/// No rights, an unfinished transaction, a machine that has changed since the plan was shown (nothing is done then), or
/// a change that failed (everything is taken back then).
pub fn carry_out(machine: &mut Machine<'_>, job: DeviceJob<'_>) -> Result<(u32, Verification), ChangeError> {
    let DeviceJob { journal, plan, plan_again, faults, say } = job;
    may_begin(machine, journal)?;
    let lock = journal.lock()?;
    may_begin(machine, journal)?;
    if plan_again(machine)?.changes != plan.changes {
        let problems = vec!["the machine changed after these changes were shown: run the command again".to_owned()];
        return Err(ChangeError::Preconditions { problems });
    }
    let work = Work {
        journal,
        lock: &lock,
        purpose: Purpose::Devices(DeviceTask { schema: DEVICES_SCHEMA.to_owned(), task: plan.task.clone() }),
        changes: &plan.changes,
        // No guest is shut down for a device.
        shutdown_timeout: Duration::ZERO,
        rollback_on_mismatch: false,
        faults,
    };
    let changes = plan.changes.clone();
    let Transacted { transaction, read_back, .. } = transact(machine, work, say, |machine| {
        let found = held::of_changes(machine, &plan.task, &changes);
        (found.mismatches(), found)
    })?;
    Ok((transaction, read_back))
}
