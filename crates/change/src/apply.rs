//! Putting a plan in force: check everything, journal each change before it is made, read back.

use std::time::Duration;

use nearmetal_place::Placement;

use crate::change::Change;
use crate::faults::Faults;
use crate::journal::{Journal, Purpose};
use crate::machine::Machine;
use crate::plan_file::PlanFile;
use crate::transact::{Transacted, Work, may_begin, transact};
use crate::verify::Verification;
use crate::{ChangeError, steps};

/// How a plan is put in force.
#[derive(Debug, Clone)]
pub struct ApplyOptions {
    /// Guests may be shut down and started again.
    pub restart: bool,
    /// Only what can be done while guests run; the rest comes with their next start.
    pub live_only: bool,
    /// Guests that are off are started.
    pub start: bool,
    /// How long a guest may take to shut down.
    pub shutdown_timeout: Duration,
    /// Everything is taken back if the read-back finds something else than planned.
    pub rollback_on_mismatch: bool,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self {
            restart: false,
            live_only: false,
            start: false,
            shutdown_timeout: Duration::from_secs(120),
            rollback_on_mismatch: false,
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Applied {
    /// Number of the transaction; `None` if there was nothing to change.
    pub transaction: Option<u32>,
    /// The read-back, one per domain.
    pub verifications: Vec<Verification>,
    /// Whether a mismatch led to a rollback.
    pub taken_back: bool,
}

/// Reads back one domain of a plan, after everything was done. What cannot be read is a check that cannot tell.
pub type ReadBack<'f> = dyn FnMut(&mut Machine<'_>, &PlanFile, &Placement) -> Verification + 'f;

/// Everything but the machine that [`apply`] works with.
pub struct Apply<'a> {
    /// The journal.
    pub journal: &'a Journal,
    /// The plan.
    pub plan: &'a PlanFile,
    /// How.
    pub options: &'a ApplyOptions,
    /// Where to die, in tests.
    pub faults: &'a Faults,
    /// The read-back.
    pub read_back: &'a mut ReadBack<'a>,
    /// Told what is being done.
    pub say: &'a mut dyn FnMut(&str),
}

/// The changes a plan takes on this machine now; refuses with all that is in the way.
pub fn changes(
    machine: &mut Machine<'_>,
    journal: &Journal,
    plan: &PlanFile,
    options: &ApplyOptions,
) -> Result<Vec<Change>, ChangeError> {
    may_begin(machine, journal)?;
    steps::expand(machine, plan, options, journal.state_directory())
}

/// Puts a plan in force.
pub fn apply(machine: &mut Machine<'_>, job: Apply<'_>) -> Result<Applied, ChangeError> {
    let Apply { journal, plan, options, faults, read_back, say } = job;
    // Looked at before the lock is taken, so that a refusal leaves no trace, and again with it.
    changes(machine, journal, plan, options)?;
    let lock = journal.lock()?;
    let changes = changes(machine, journal, plan, options)?;
    if changes.is_empty() {
        let verifications = verify_all(machine, plan, read_back);
        return Ok(Applied { transaction: None, verifications, taken_back: false });
    }
    let work = Work {
        journal,
        lock: &lock,
        purpose: Purpose::Plan(Box::new(plan.clone())),
        changes: &changes,
        shutdown_timeout: options.shutdown_timeout,
        rollback_on_mismatch: options.rollback_on_mismatch,
        faults,
    };
    let made = transact(machine, work, say, |machine| {
        let verifications = verify_all(machine, plan, read_back);
        (verifications.iter().map(Verification::mismatches).sum(), verifications)
    })?;
    let Transacted { transaction, read_back: verifications, taken_back } = made;
    Ok(Applied { transaction: Some(transaction), verifications, taken_back })
}

fn verify_all(machine: &mut Machine<'_>, plan: &PlanFile, read_back: &mut ReadBack<'_>) -> Vec<Verification> {
    plan.plan.placements.iter().map(|placement| read_back(machine, plan, placement)).collect()
}

/// Every fault point of these changes, in order.
pub fn fault_points(changes: &[Change]) -> Vec<String> {
    let mut points = vec!["begin:before-header".to_owned(), "begin:header-written".to_owned()];
    for (change, step) in changes.iter().zip(1..) {
        let moments: &[&str] = match change {
            Change::ShutdownDomain { .. } => {
                &["before-intent", "intent-written", "begun", "asked", "made", "done-written"]
            }
            _ => &["before-intent", "intent-written", "made", "done-written"],
        };
        points.extend(moments.iter().map(|moment| format!("{step}:{}:{moment}", change.slug())));
    }
    points.extend(["before-read-back", "before-commit", "committed"].map(|moment| format!("end:{moment}")));
    points
}
