//! `nearmetal verify`.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nearmetal_change::devices;
use nearmetal_change::fix::{CuredObject, held};
use nearmetal_change::journal::Transaction;
use nearmetal_change::verify::{Effort, TAINTS, Verification, judge, observe, rules_kept};
use nearmetal_change::{AnyPlan, ChangeError, FleetPlanFile, HostIdentity, Journal, Machine, PlanFile};
use nearmetal_host::{HostFs, files};
use nearmetal_hypervisor::Libvirt;
use nearmetal_rules::Scope;

use super::apply::show;
use crate::drift;
use crate::exit_status::ExitStatus;
use crate::fleet::over_hosts::{self, Errand};
use crate::live::read_with_versions;
use crate::printer::Printer;
use crate::refusal::refuse;
use crate::state::{StateArgs, load_plan, warn_of_unfinished};
use crate::style::Format;

/// Check against the kernel that a plan is in force
///
/// Compares the plan with every thread's PUs, every page's node and size, the pools, the disks' cache and I/O engine,
/// passed-through functions with their interrupts and cards, libvirt's definitions, and what the guest sees. It compares
/// the stored definition with how threads are scheduled, their processor time, the balloon, and throttles of disks and
/// interfaces. It also checks that the guest is not paused, and every setting that `nearmetal doctor --fix` changed. The
/// exit code is 1 if anything is not as planned.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Domains to check [default: all domains of the plan, or everything applied and fixed here]
    #[arg(value_name = "DOMAIN")]
    domains: Vec<String>,
    /// Check everything applied and fixed here, as without a domain, and call it done if nothing is in force
    #[arg(long, conflicts_with_all = ["domains", "plan"])]
    all: bool,
    /// Also write what was found for Prometheus: a file of its text format, replaced in one step, that the textfile
    /// collector of node_exporter reads; its name must end in .prom. It also counts the findings of `nearmetal doctor`
    #[arg(long, value_name = "FILE", requires = "all", value_parser = prometheus_file)]
    textfile: Option<PathBuf>,
    /// Also write each difference to the system's journal, with the fields NEARMETAL_DOMAIN, NEARMETAL_CHECK,
    /// NEARMETAL_PLANNED and NEARMETAL_FOUND
    #[arg(long, requires = "all")]
    journal: bool,
    /// Compare with this plan, of a host or a fleet; `-` for stdin [default: the plan last applied to the domain]
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Do not make guests read from their disks; the I/O engine then shows only if the guests do I/O themselves
    #[arg(long)]
    no_load: bool,
    /// Also watch for 3 seconds which node's memory the vCPUs touch, and ask QEMU for the iothread of each queue; libvirt then
    /// marks the running guest as tainted (custom-monitor)
    #[arg(long)]
    deep: bool,
    /// Seconds to wait for a guest agent
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    agent_timeout: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    state: StateArgs,
}

/// Runs the command.
pub(crate) fn verify(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let mut found = None;
    let status = run(&args, &mut found, printer).unwrap_or_else(|error| refuse(printer, &error));
    // Each is tried, whatever became of the other and of reading back.
    let mut outputs: Vec<anyhow::Result<()>> = Vec::new();
    if let Some(path) = &args.textfile {
        // Also where nothing could be read back: a file of yesterday would go on saying that all is well.
        let text = drift::prometheus(found.as_deref(), drift::findings().as_ref(), SystemTime::now());
        outputs.push(files::write_atomic(path, text).map_err(Into::into));
    }
    if args.journal {
        outputs.push(drift::to_the_journal(found.as_deref().unwrap_or_default()));
    }
    let failed: Vec<anyhow::Error> = outputs.into_iter().filter_map(Result::err).collect();
    failed.iter().for_each(|error| printer.important(&format!("error: {error:#}")));
    Ok(if failed.is_empty() { status } else { ExitStatus::Refused })
}

/// node_exporter looks at no other files.
fn prometheus_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().is_some_and(|extension| extension == "prom") {
        true => Ok(path),
        false => Err("node_exporter reads only files whose names end in .prom".to_owned()),
    }
}

/// `found` is what was read back, if reading back came to its end.
fn run(args: &Args, found: &mut Option<Vec<Verification>>, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    let given = args.plan.as_deref().map(load_plan).transpose()?;
    if let Some(AnyPlan::Fleet(plan)) = &given {
        return over_the_fleet(args, plan, printer);
    }
    let journal = args.state.journal();
    warn_of_unfinished(&journal, printer);
    let cures = cures(args, &journal)?;
    let plans = match given {
        Some(AnyPlan::Host(plan)) => plans_of(args, &plan)?,
        _ => plans(args, &journal, &cures)?,
    };
    if plans.is_empty() && cures.is_empty() {
        unfinished(args, &journal)?;
        printer.say("nothing is in force here: nothing to check");
        if args.format == Format::Json {
            show(&[], args.format, printer);
        }
        *found = Some(Vec::new());
        return Ok(ExitStatus::Done);
    }
    let kernel = HostFs::live();
    let mut libvirt = Libvirt::open(None)?;
    let effort = Effort {
        read_in_guest: !args.no_load,
        agent: Duration::from_secs(args.agent_timeout),
        natural: Duration::from_secs(5),
        deep: args.deep,
    };
    if args.deep {
        printer.important(&format!("--deep asks QEMU through its monitor: {TAINTS}"));
    }
    let mut verifications = Vec::new();
    let mut host = None;
    for (domain, plan) in &plans {
        // Known to be there: the plan was chosen by it.
        let Some(placement) = plan.placement(domain) else { continue };
        let observed = observe(&kernel, &mut libvirt, &plan.plan, placement, &effort);
        let mut verification = judge(&plan.plan, placement, &observed);
        let change = plan.domains.iter().find(|change| change.name == *domain && !change.followed.is_empty());
        if let Some(change) = change {
            let host = host.get_or_insert_with(|| read_with_versions(&kernel, &mut libvirt));
            verification.checks.extend(rules_kept(change, host, &observed));
        }
        verifications.push(verification);
    }
    let mut machine = Machine::here(&kernel, &mut libvirt, HostIdentity::unread())?;
    let all = journal.transactions()?;
    verifications.extend(cures.iter().filter_map(|transaction| {
        held(&mut machine, transaction).or_else(|| devices::held(&mut machine, transaction, &all))
    }));
    show(&verifications, args.format, printer);
    unfinished(args, &journal)?;
    let mismatches: usize = verifications.iter().map(Verification::mismatches).sum();
    *found = Some(verifications);
    match (mismatches, plans.first()) {
        (0, Some((domain, _))) => printer.say(&format!(
            "to measure what the plan is worth: nearmetal bench slice {domain} --scratch DEVICE --quick --pause"
        )),
        (0, None) => {}
        _ => printer.say("to put it right, apply the plan again; to undo the last change: nearmetal rollback"),
    }
    Ok(if mismatches > 0 { ExitStatus::Findings } else { ExitStatus::Done })
}

/// With `--all` a transaction that did not end is an end of its own: whoever reads figures sees no warnings.
fn unfinished(args: &Args, journal: &Journal) -> Result<(), ChangeError> {
    match journal.unfinished()?.filter(|_| args.all) {
        None => Ok(()),
        Some(transaction) => {
            Err(ChangeError::Unfinished { transaction: transaction.number(), started: transaction.header.started })
        }
    }
}

/// Cures and devices in force: all, or the cures that concern a domain that was named.
fn cures(args: &Args, journal: &Journal) -> Result<Vec<Transaction>, ChangeError> {
    if args.plan.is_some() {
        return Ok(Vec::new());
    }
    let wanted = |transaction: &Transaction| {
        if transaction.header.purpose.devices().is_some() {
            return transaction.is_committed() && args.domains.is_empty();
        }
        let list = transaction.header.purpose.cures().filter(|_| transaction.is_committed());
        let named = |object: &CuredObject| match &object.scope {
            Scope::Domain { name, .. } => args.domains.contains(name),
            Scope::Host => false,
        };
        list.is_some_and(|list| args.domains.is_empty() || list.objects.iter().any(named))
    };
    Ok(journal.transactions()?.into_iter().filter(wanted).collect())
}

/// Each host reads back its own part, by its own kernel.
fn over_the_fleet(args: &Args, plan: &FleetPlanFile, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    if !args.domains.is_empty() {
        let problem = "with the plan of a fleet all its domains are verified: name no domain".to_owned();
        return Err(ChangeError::PlanUnreadable { origin: "the plan".to_owned(), problem });
    }
    let mut arguments = ["verify", "--plan", "-", "--agent-timeout"].map(str::to_owned).to_vec();
    arguments.push(args.agent_timeout.to_string());
    arguments.extend(args.no_load.then(|| "--no-load".to_owned()));
    arguments.extend(args.deep.then(|| "--deep".to_owned()));
    arguments.extend((args.format == Format::Json).then(|| "--format=json".to_owned()));
    let errand = Errand { arguments, reverse: false, stop_at_first: false };
    let outcomes = over_hosts::run(plan, &errand, printer);
    over_hosts::show(&outcomes, "as planned", "not as planned", args.format, printer);
    Ok(over_hosts::status(&outcomes))
}

/// The domains asked for of a plan that was given.
fn plans_of(args: &Args, plan: &PlanFile) -> Result<Vec<(String, PlanFile)>, ChangeError> {
    let all: Vec<String> = plan.domains.iter().map(|domain| domain.name.clone()).collect();
    let wanted = if args.domains.is_empty() { all.clone() } else { args.domains.clone() };
    if let Some(unknown) = wanted.iter().find(|domain| !all.contains(domain)) {
        let problem = format!("`{unknown}` is not in it (there are: {})", all.join(", "));
        let origin = args.plan.as_ref().map_or_else(String::new, |path| format!("`{}`", path.display()));
        return Err(ChangeError::PlanUnreadable { origin, problem });
    }
    Ok(wanted.into_iter().map(|domain| (domain, plan.clone())).collect())
}

/// The plan of each domain. One that only cures concern has none.
fn plans(args: &Args, journal: &Journal, cures: &[Transaction]) -> Result<Vec<(String, PlanFile)>, ChangeError> {
    let mut wanted = args.domains.clone();
    if wanted.is_empty() {
        // What did not end has no plan to compare with; with --all it is refused once the rest was read back.
        let is_meant = |one: &&Transaction| if args.all { one.is_committed() } else { one.is_in_force() };
        for transaction in journal.transactions()?.iter().filter(is_meant) {
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
                    "no plan in force covers `{domain}` (journal in {}): apply a plan, or name one with --plan",
                    journal.state_directory().display()
                )));
            }
        }
    }
    if plans.is_empty() && cures.is_empty() && !args.all {
        let text = format!(
            "nothing was applied here yet (journal in {}): apply a plan, or name one with --plan",
            journal.state_directory().display()
        );
        return Err(ChangeError::NothingToRollBack(text));
    }
    Ok(plans)
}
