//! Reading back what is in force: which plans and cures those are, and what kernel, QEMU and libvirt say of each.

use nearmetal_change::fix::{CuredObject, held};
use nearmetal_change::journal::{Transaction, plan_in_force};
use nearmetal_change::verify::{Effort, Verification, judge, observe, rules_kept};
use nearmetal_change::{Change, ChangeError, HostIdentity, Journal, Machine, PlanFile, awaits_start, devices};
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_place::Placement;
use nearmetal_rules::Scope;

use crate::live::read_with_versions;
use crate::standing::planned;

/// What can be read back: domains with the plan of each, and transactions of cures and devices.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    /// Domains, each with the plan last applied to it.
    pub plans: Vec<(String, PlanFile)>,
    /// Cures and devices.
    pub cures: Vec<Transaction>,
    /// Every transaction of the journal, oldest first.
    pub all: Vec<Transaction>,
}

impl InForce {
    /// What the journal says of these domains, or of everything if none is named: what did not end does not count. With `all`, that there
    /// is nothing is no error.
    ///
    /// # Errors
    /// The journal cannot be read, or nothing in it covers a domain.
    pub(crate) fn read(journal: &Journal, domains: &[String], all: bool) -> Result<Self, ChangeError> {
        let transactions = journal.transactions()?;
        let cures = cures(&transactions, domains);
        let plans = plans(journal, &transactions, domains, all, &cures)?;
        Ok(Self { plans, cures, all: transactions })
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.plans.is_empty() && self.cures.is_empty()
    }

    /// Asks libvirt once, if anything of this is read back through it. Each check by itself says of a libvirt that does not answer only
    /// that it cannot tell, and a read-back of such checks would pass.
    ///
    /// # Errors
    /// libvirt does not answer.
    pub(crate) fn reach_libvirt(&self, hypervisor: &mut dyn Hypervisor) -> Result<(), ChangeError> {
        let mut changes = self.cures.iter().flat_map(|transaction| &transaction.steps).map(|step| &step.change);
        let of_guests = changes.any(|change| matches!(change, Change::DefineDomain { .. } | Change::LivePin { .. }));
        if of_guests || !self.plans.is_empty() {
            hypervisor.versions()?;
        }
        Ok(())
    }
}

/// One guest beside its plan. `host` keeps this machine, read when a guest needs it first, for the others.
pub(crate) fn guest(
    kernel: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    plan: &PlanFile,
    placement: &Placement,
    effort: &Effort,
    host: &mut Option<Host>,
) -> Verification {
    let observed = observe(kernel, hypervisor, &plan.plan, placement, effort);
    let mut verification = judge(&plan.plan, placement, &observed);
    let change = plan.domains.iter().find(|change| change.name == placement.guest && !change.followed.is_empty());
    if let Some(change) = change {
        let host = host.get_or_insert_with(|| read_with_versions(kernel, hypervisor));
        verification.checks.extend(rules_kept(change, host, &observed));
    }
    verification
}

/// The same of a guest whose plan the journal has in force: what waits for its next start since it was redefined is no difference.
pub(crate) fn guest_in_force(
    kernel: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    (plan, placement): (&PlanFile, &Placement),
    all: &[Transaction],
    effort: &Effort,
    host: &mut Option<Host>,
) -> Verification {
    let mut verification = guest(kernel, hypervisor, plan, placement, effort, host);
    let machine = Machine::here(kernel, hypervisor, HostIdentity::unread());
    if let Ok(mut machine) = machine {
        verification.await_restart(&awaits_start(&mut machine, all, placement));
    }
    verification
}

/// Whether settings and devices are as cures and `device` left them.
///
/// # Errors
/// This machine cannot be told.
pub(crate) fn settings(
    kernel: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    in_force: &InForce,
) -> Result<Vec<Verification>, ChangeError> {
    let mut machine = Machine::here(kernel, hypervisor, HostIdentity::unread())?;
    Ok(in_force
        .cures
        .iter()
        .filter_map(|transaction| {
            held(&mut machine, transaction, &in_force.all)
                .or_else(|| devices::held(&mut machine, transaction, &in_force.all))
        })
        .collect())
}

/// Fails for a transaction that did not end: whoever reads figures sees no warnings.
///
/// # Errors
/// There is one, or the journal cannot be read.
pub(crate) fn ended(journal: &Journal) -> Result<(), ChangeError> {
    all_ended(&journal.transactions()?)
}

/// As [`ended`], of transactions that were read.
///
/// # Errors
/// One did not end.
pub(crate) fn all_ended(all: &[Transaction]) -> Result<(), ChangeError> {
    match all.iter().rev().find(|transaction| transaction.is_unfinished()) {
        None => Ok(()),
        Some(transaction) => Err(ChangeError::Unfinished {
            transaction: transaction.number(),
            started: transaction.header.started.clone(),
        }),
    }
}

/// Cures and devices in force: all, or the cures that concern a domain that was named.
fn cures(transactions: &[Transaction], domains: &[String]) -> Vec<Transaction> {
    let wanted = |transaction: &Transaction| {
        if transaction.header.purpose.devices().is_some() {
            return transaction.is_committed() && domains.is_empty();
        }
        let are_cures = transaction.is_committed() && transaction.header.purpose.cures().is_some();
        are_cures && (domains.is_empty() || concerns(transaction, domains))
    };
    transactions.iter().filter(|transaction| wanted(transaction)).cloned().collect()
}

/// Whether one of these domains was cured.
fn concerns(transaction: &Transaction, domains: &[String]) -> bool {
    let named = |object: &CuredObject| match &object.scope {
        Scope::Domain { name, .. } => domains.contains(name),
        Scope::Host => false,
    };
    transaction.header.purpose.cures().is_some_and(|list| list.objects.iter().any(named))
}

/// The plan of each domain. One that only cures concern has none.
fn plans(
    journal: &Journal,
    transactions: &[Transaction],
    domains: &[String],
    all: bool,
    cures: &[Transaction],
) -> Result<Vec<(String, PlanFile)>, ChangeError> {
    let mut wanted = domains.to_vec();
    if wanted.is_empty() {
        // What did not end has no plan to compare with: it is refused once the rest was read back.
        for transaction in transactions.iter().filter(|one| one.is_committed()) {
            let domains = transaction.header.purpose.plan().into_iter().flat_map(|plan| &plan.domains);
            let names = domains.map(|domain| domain.name.clone());
            wanted.extend(names.filter(|name| !wanted.contains(name)).collect::<Vec<_>>());
        }
    }
    let mut plans = Vec::new();
    for domain in wanted {
        match plan_in_force(transactions, &domain) {
            Some(plan) => plans.push((domain, plan.clone())),
            None if cures.iter().any(|cure| concerns(cure, std::slice::from_ref(&domain))) => {}
            None => {
                let there = match planned(transactions) {
                    names if names.is_empty() => "none is in force".to_owned(),
                    names => format!("those in force are of {}", names.join(", ")),
                };
                return Err(ChangeError::NothingToRollBack(format!(
                    "no plan in force covers `{domain}` (journal in {}; {there}): apply a plan, or name one with --plan",
                    journal.state_directory().display()
                )));
            }
        }
    }
    if plans.is_empty() && cures.is_empty() && !all {
        if domains.is_empty() {
            all_ended(transactions)?;
        }
        let text = format!(
            "nothing was applied here yet (journal in {}): apply a plan, or name one with --plan",
            journal.state_directory().display()
        );
        return Err(ChangeError::NothingToRollBack(text));
    }
    Ok(plans)
}
