//! Making the changes of a [`FixPlan`], journalled.

use std::time::Duration;

use super::FixPlan;
use crate::ChangeError;
use crate::faults::Faults;
use crate::journal::{Journal, Purpose};
use crate::machine::Machine;
use crate::transact::{Transacted, Work, may_begin, transact};

/// Everything but the machine that [`cure`] works with.
pub struct CureJob<'a, T> {
    /// The journal.
    pub journal: &'a Journal,
    /// What was shown and agreed to.
    pub plan: &'a FixPlan,
    /// Makes the plan again, with the journal's lock held.
    pub plan_again: &'a mut dyn FnMut(&mut Machine<'_>) -> Result<FixPlan, ChangeError>,
    /// Looks at the machine again; counts what was to be cured now and is not.
    pub read_back: &'a mut dyn FnMut(&mut Machine<'_>) -> (usize, T),
    /// Where to die, in tests.
    pub faults: &'a Faults,
    /// Told what is being done.
    pub say: &'a mut dyn FnMut(&str),
}

/// What came of it.
#[derive(Debug)]
pub struct Cured<T> {
    /// Number of the transaction.
    pub transaction: u32,
    /// What the read-back made of it.
    pub read_back: T,
}

/// Makes the changes.
///
/// # Errors
/// No rights, an unfinished transaction, a machine that has changed since the plan was shown (nothing is done then), or
/// a change that failed (everything is taken back then).
pub fn cure<T>(machine: &mut Machine<'_>, job: CureJob<'_, T>) -> Result<Cured<T>, ChangeError> {
    let CureJob { journal, plan, plan_again, read_back, faults, say } = job;
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
        purpose: Purpose::Cures(plan.list()),
        changes: &plan.changes,
        // No cure shuts a guest down.
        shutdown_timeout: Duration::ZERO,
        rollback_on_mismatch: false,
        faults,
    };
    let Transacted { transaction, read_back, .. } = transact(machine, work, say, read_back)?;
    Ok(Cured { transaction, read_back })
}
