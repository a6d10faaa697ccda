//! Which guests a rollback has to stop, and which it has to leave running.

use std::collections::BTreeSet;

use nearmetal_hypervisor::HypervisorError;

use crate::ChangeError;
use crate::change::Change;
use crate::instance::{Instance, is_same};
use crate::journal::Transaction;
use crate::machine::Machine;
use crate::perform::stored_definition;

/// A guest that a transaction concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) domain: String,
    /// It runs in the form that is taken back, or is on its way down.
    pub(crate) must_stop: bool,
    /// It is to run when all is done.
    pub(crate) runs_at_the_end: bool,
    /// It ran before, and a reboot has ended it.
    pub(crate) lost_at_reboot: bool,
}

/// Looks at every guest whose definition or running state the transaction may have changed.
pub(crate) fn guests(machine: &mut Machine<'_>, transaction: &Transaction) -> Result<Vec<Running>, ChangeError> {
    let mut domains = BTreeSet::new();
    for step in &transaction.steps {
        if let Change::DefineDomain { domain, .. }
        | Change::NewDomain { domain, .. }
        | Change::ShutdownDomain { domain, .. }
        | Change::StartDomain { domain } = &step.change
        {
            domains.insert(domain.as_str());
        }
    }
    domains.into_iter().map(|domain| guest(machine, transaction, domain)).collect()
}

fn guest(machine: &mut Machine<'_>, transaction: &Transaction, domain: &str) -> Result<Running, ChangeError> {
    let summary = match machine.hypervisor.domain(domain) {
        Ok(summary) => Some(summary),
        Err(HypervisorError::NoSuchDomain { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let runs = summary.as_ref().is_some_and(|summary| !summary.state.is_off());
    let now = summary.as_ref().map(|summary| Instance::of(machine, summary)).transpose()?.flatten();
    let same_boot = transaction.header.boot_id == machine.boot_id;
    let of_domain = |change: &Change| match change {
        Change::DefineDomain { domain: own, .. }
        | Change::NewDomain { domain: own, .. }
        | Change::ShutdownDomain { domain: own, .. }
        | Change::StartDomain { domain: own } => own == domain,
        _ => false,
    };
    let (mut former, mut redefined, mut shut_down, mut asked, mut started) = (None, None, false, false, false);
    let mut made = false;
    for step in transaction.steps.iter().filter(|step| of_domain(&step.change)) {
        match &step.change {
            Change::DefineDomain { instance, old_xml, .. } => {
                former = former.or(*instance);
                // Once its old definition is back, whatever runs was started from that, by an earlier rollback: unless that one was to
                // leave guests running.
                redefined = Some(match step.undone {
                    true => transaction.guests_kept_in.as_ref() == Some(&machine.boot_id),
                    false => stored_definition(machine, domain)?.as_ref() != Some(old_xml),
                });
            }
            Change::NewDomain { uuid, .. } => {
                made = true;
                // Another domain of that name is not ours to stop.
                let ours = summary.as_ref().is_some_and(|summary| summary.uuid.eq_ignore_ascii_case(uuid));
                redefined = Some(!step.undone && ours);
            }
            Change::ShutdownDomain { instance, .. } => {
                (former, shut_down, asked) = (former.or(*instance), true, step.begun && !step.done);
            }
            _ => started = true,
        }
    }
    let is_former = same_boot && is_same(now, former);
    let in_new_form = runs && !is_former && redefined.unwrap_or(started);
    let must_stop = in_new_form || (runs && is_former && asked);
    let lost_at_reboot = shut_down && !same_boot && !runs;
    // What an earlier, interrupted rollback of this boot decided stands: it may have stopped the guest since.
    let decided = transaction.rollback.as_ref().filter(|(boot, _)| *boot == machine.boot_id);
    let runs_at_the_end = match decided {
        Some((_, running)) => running.iter().any(|name| name == domain),
        // It is gone then, or, where guests are not to be stopped, runs on by itself.
        None if made => false,
        None if shut_down && same_boot => true,
        None if started && !shut_down && same_boot => false,
        None => runs,
    };
    Ok(Running { domain: domain.to_owned(), must_stop, runs_at_the_end, lost_at_reboot })
}
