//! `nearmetal verify`.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_change::fix::{CuredObject, held};
use nearmetal_change::journal::Transaction;
use nearmetal_change::verify::{Effort, Verification, judge, observe};
use nearmetal_change::{ChangeError, HostIdentity, Journal, Machine, PlanFile};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::Libvirt;
use nearmetal_rules::Scope;

use super::apply::show;
use super::shared::{Format, StateArgs, refuse, warn_of_unfinished};
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Read back from the kernel whether a plan is in force
///
/// Compares every thread's PUs, every page's node and size, the pools, the disks' cache and engine, libvirt's definitions
/// and what the guest sees with the plan; and everything `nearmetal doctor --fix` has changed with what it set. Exit code
/// 1 if anything is not as planned.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Domains; all of the plan, or of everything that was applied or cured, if none is named
    #[arg(value_name = "DOMAIN")]
    domains: Vec<String>,
    /// The plan to compare with [default: the one that was last applied to the domain]
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Do not have guests read from their disks; which engine serves them then shows only if they work by themselves
    #[arg(long)]
    no_load: bool,
    /// Seconds to wait for a guest's agent
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    agent_timeout: u64,
    /// How it is shown
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    state: StateArgs,
}

/// Runs the command.
pub(crate) fn verify(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match run(&args, printer) {
        Ok(status) => Ok(status),
        Err(error) => Ok(refuse(printer, &error)),
    }
}

fn run(args: &Args, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    let journal = args.state.journal();
    warn_of_unfinished(&journal, printer);
    let cures = cures(args, &journal)?;
    let plans = plans(args, &journal, &cures)?;
    let files = HostFs::live();
    let mut libvirt = Libvirt::open(None)?;
    let effort = Effort {
        read_in_guest: !args.no_load,
        agent: Duration::from_secs(args.agent_timeout),
        natural: Duration::from_secs(5),
    };
    let mut verifications = Vec::new();
    for (domain, plan) in &plans {
        // Known to be there: the plan was chosen by it.
        let Some(placement) = plan.placement(domain) else { continue };
        let observed = observe(&files, &mut libvirt, &plan.plan, placement, &effort);
        verifications.push(judge(&plan.plan, placement, &observed));
    }
    let mut machine = Machine::here(&files, &mut libvirt, HostIdentity::unread())?;
    verifications.extend(cures.iter().filter_map(|transaction| held(&mut machine, transaction)));
    show(&verifications, args.format, printer);
    let mismatches: usize = verifications.iter().map(Verification::mismatches).sum();
    Ok(if mismatches > 0 { ExitStatus::Findings } else { ExitStatus::Done })
}

/// Cures in force: all, or those that concern a domain that was named.
fn cures(args: &Args, journal: &Journal) -> Result<Vec<Transaction>, ChangeError> {
    if args.plan.is_some() {
        return Ok(Vec::new());
    }
    let wanted = |transaction: &Transaction| {
        let list = transaction.header.purpose.cures().filter(|_| transaction.is_committed());
        let named = |object: &CuredObject| match &object.scope {
            Scope::Domain { name, .. } => args.domains.contains(name),
            Scope::Host => false,
        };
        list.is_some_and(|list| args.domains.is_empty() || list.objects.iter().any(named))
    };
    Ok(journal.transactions()?.into_iter().filter(wanted).collect())
}

/// The plan of each domain. One that only cures concern has none.
fn plans(args: &Args, journal: &Journal, cures: &[Transaction]) -> Result<Vec<(String, PlanFile)>, ChangeError> {
    if let Some(path) = &args.plan {
        let plan = PlanFile::load(path)?;
        let all: Vec<String> = plan.domains.iter().map(|domain| domain.name.clone()).collect();
        let wanted = if args.domains.is_empty() { all.clone() } else { args.domains.clone() };
        if let Some(unknown) = wanted.iter().find(|domain| !all.contains(domain)) {
            let problem = format!("`{unknown}` is not in it (there are: {})", all.join(", "));
            return Err(ChangeError::PlanUnreadable { origin: format!("`{}`", path.display()), problem });
        }
        return Ok(wanted.into_iter().map(|domain| (domain, plan.clone())).collect());
    }
    let mut wanted = args.domains.clone();
    if wanted.is_empty() {
        for transaction in journal.transactions()?.iter().filter(|transaction| transaction.is_in_force()) {
            let domains = transaction.header.purpose.plan().into_iter().flat_map(|plan| &plan.domains);
            let names = domains.map(|domain| domain.name.clone());
            wanted.extend(names.filter(|name| !wanted.contains(name)).collect::<Vec<_>>());
        }
    }
    let mut plans = Vec::new();
    for domain in wanted {
        match journal.plan_in_force(&domain)? {
            Some(plan) => plans.push((domain, plan)),
            None if !cures.is_empty() => {}
            None => {
                return Err(ChangeError::NothingToRollBack(format!(
                    "no plan in force concerns `{domain}` (journal in {}): apply one, or name one with --plan",
                    journal.state_directory().display()
                )));
            }
        }
    }
    if plans.is_empty() && cures.is_empty() {
        let text = format!(
            "nothing has been applied here (journal in {}): apply a plan, or name one with --plan",
            journal.state_directory().display()
        );
        return Err(ChangeError::NothingToRollBack(text));
    }
    Ok(plans)
}
