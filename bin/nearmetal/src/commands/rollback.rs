//! `nearmetal rollback`.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_change::journal::Transaction;
use nearmetal_change::{
    AnyPlan, ChangeError, Faults, FleetPlanFile, HostIdentity, Journal, Machine, PlanFile, Preview, RollbackOptions,
    forget, preview, rollback as take_back, rollback_fault_points, timestamp,
};
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{Hypervisor, Libvirt};
use nearmetal_measure::{leftovers_since, take_back_leftovers};

use crate::consent::{agreed, somebody_is_there};
use crate::exit_status::ExitStatus;
use crate::fleet::over_hosts::{self, Errand};
use crate::job::outputs::{IN_FORCE_SCHEMA, InForceOutput, ROLLBACK_SCHEMA, RollbackOutput};
use crate::printer::Printer;
use crate::refusal::{NoLibvirt, refuse};
use crate::standing::{line, listed, with_writer};
use crate::state::{StateArgs, load_plan};
use crate::style::Format;

/// What is said of leftovers.
const PUT_BACK: &str =
    "put back what a killed measurement had left: clones, pools, devices, guests that it had paused or started";

/// Undo the last apply, doctor --fix or device change
///
/// Restores the former definitions, pools, settings and running state from the journal, whether the change finished or was
/// killed at any step. First it puts back what a killed measurement left. A VM that `tune --command` had started is shut
/// down and runs as before, with or without --restart. If the measurement was the last thing that happened, it rolls back
/// nothing else, unless you give --transaction, --plan, --restart or --keep-running. What a reboot has already undone is
/// only reported. If a rollback is killed, run it again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The transaction to undo [default: the unfinished one, or the last one in force]
    #[arg(long, value_name = "NUMBER")]
    transaction: Option<u32>,
    /// Undo the transaction that applied this plan; `-` for stdin. A fleet's plan is undone on every host where it is in
    /// force, in reverse order
    #[arg(long, value_name = "FILE", conflicts_with_all = ["transaction", "forget"])]
    plan: Option<PathBuf>,
    /// Shut down guests that run with the new definition, and start those that ran before
    #[arg(long)]
    restart: bool,
    /// Let guests keep the new definition until they next stop
    #[arg(long, conflicts_with = "restart")]
    keep_running: bool,
    /// Abandon an unfinished transaction; everything stays as it is now
    #[arg(long, conflicts_with_all = ["transaction", "restart", "keep_running"])]
    forget: bool,
    /// List what is in force, latest first, with number, time and purpose, and undo nothing. If nothing is in force, stdout
    /// stays empty
    #[arg(long, conflicts_with_all = ["transaction", "plan", "forget", "restart", "keep_running"])]
    list: bool,
    /// Show what would be undone, and undo nothing
    #[arg(long, conflicts_with_all = ["forget", "list", "yes", "format"])]
    dry_run: bool,
    /// Do not ask at a terminal before guests are shut down
    #[arg(long, short)]
    yes: bool,
    /// Seconds a guest may take to shut down
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    shutdown_timeout: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// For tests: print the points at which NEARMETAL_FAULT_AT (with NEARMETAL_TESTING=1) can end the process
    #[arg(long, hide_short_help = true)]
    list_fault_points: bool,
    #[command(flatten)]
    state: StateArgs,
}

/// Runs the command.
pub(crate) fn rollback(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if args.list {
        return Ok(list(&args.state.journal(), args.format, printer).unwrap_or_else(|error| refuse(printer, &error)));
    }
    let last = leftovers_since(args.state.journal().state_directory()).map(timestamp::of);
    let cleaned = match (args.dry_run, args.list_fault_points || args.forget) {
        (true, _) => last.is_some(),
        (false, true) => false,
        (false, false) => after_a_measurement(&args, printer)?,
    };
    if args.dry_run && cleaned {
        printer.data("first, what a killed measurement left would be put back");
    }
    let means_a_plan = args.transaction.is_some() || args.plan.is_some() || args.restart || args.keep_running;
    if cleaned && !means_a_plan {
        match changed_since(&args.state.journal(), &last.unwrap_or_default()) {
            Ok(true) => {}
            Ok(false) => {
                nothing_else(&args, printer);
                return Ok(ExitStatus::Done);
            }
            Err(error) => return Ok(refuse(printer, &error)),
        }
    }
    match run(&args, printer) {
        Ok(status) => Ok(status),
        // Where a transaction was named, that it cannot be undone is the answer.
        Err(ChangeError::NothingToRollBack(_)) if cleaned && args.transaction.is_none() && args.plan.is_none() => {
            nothing_else(&args, printer);
            Ok(ExitStatus::Done)
        }
        Err(error) => Ok(refuse(printer, &error)),
    }
}

/// Only what a killed measurement had left was put back.
fn nothing_else(args: &Args, printer: &mut Printer) {
    let was = if args.dry_run { "would be" } else { "was" };
    printer.important(&format!("nothing else {was} rolled back; to see what is in force: nearmetal rollback --list"));
    if args.format == Format::Json {
        print(None, (vec![PUT_BACK.to_owned()], Vec::new()), printer);
    }
}

/// What could be undone, a line each, the next one first.
fn list(journal: &Journal, format: Format, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    let (all, writer) = with_writer(journal, &HostFs::live())?;
    let in_force = all.iter().rev().filter(|transaction| transaction.is_in_force());
    if in_force.clone().next().is_none() {
        printer.say("nothing is in force: nearmetal has changed nothing here, or all of it was undone");
    }
    match format {
        Format::Text => in_force.for_each(|transaction| printer.data(&line(transaction, writer))),
        Format::Json => {
            let transactions = in_force.map(|transaction| listed(transaction, writer)).collect();
            let output = InForceOutput { schema: IN_FORCE_SCHEMA.to_owned(), transactions };
            printer.data(&serde_json::to_string_pretty(&output).unwrap_or_default());
        }
    }
    Ok(ExitStatus::Done)
}

/// Takes back what a measurement that was killed left: clones, pools, bridges, a paused guest.
fn after_a_measurement(args: &Args, printer: &mut Printer) -> anyhow::Result<bool> {
    let libvirt = || Libvirt::open(None).map(|libvirt| Box::new(libvirt) as Box<dyn Hypervisor>);
    let state = args.state.journal().state_directory().to_owned();
    let cleaned = take_back_leftovers(&state, &HostFs::live(), libvirt, &mut |line| printer.important(line))?;
    if cleaned {
        printer.say(PUT_BACK);
    }
    Ok(cleaned)
}

fn run(args: &Args, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    let journal = args.state.journal();
    let mut transaction = args.transaction;
    match args.plan.as_deref().map(load_plan).transpose()? {
        Some(AnyPlan::Fleet(plan)) => return Ok(over_the_fleet(args, &plan, printer)),
        Some(AnyPlan::Host(plan)) => match in_force(&journal, &plan)? {
            Some(number) => transaction = Some(number),
            None => {
                printer.say("this plan is not in force here: nothing changed");
                return Ok(ExitStatus::Done);
            }
        },
        None => {}
    }
    if args.forget {
        let number = forget(&journal)?;
        printer.say(&format!("abandoned transaction {number}: everything stays as it is now"));
        return Ok(ExitStatus::Done);
    }
    let files = HostFs::live();
    let host = HostIdentity::of(&Host::read(&files));
    // A transaction of devices or settings needs no libvirt; one of domains fails with this reason.
    let mut libvirt: Box<dyn Hypervisor> = match Libvirt::open(None) {
        Ok(libvirt) => Box::new(libvirt),
        Err(error) => Box::new(NoLibvirt { reason: error.to_string() }),
    };
    let mut machine = Machine::here(&files, &mut *libvirt, host)?;
    let options = RollbackOptions {
        transaction,
        restart: args.restart,
        keep_running: args.keep_running,
        shutdown_timeout: Duration::from_secs(args.shutdown_timeout),
    };
    if args.list_fault_points {
        printer.data(&rollback_fault_points(&mut machine, &journal, &options)?.join("\n"));
        return Ok(ExitStatus::Done);
    }
    if args.dry_run {
        let found = preview(&mut machine, &journal, &options)?;
        printer.data(&shown(&found));
        if !args.restart && !args.keep_running && !found.must_stop.is_empty() {
            printer.say(
                "add --restart to shut down what runs with it, or --keep-running to leave that for the next start",
            );
        }
        return Ok(ExitStatus::Done);
    }
    if args.restart && !args.yes && somebody_is_there() {
        let found = preview(&mut machine, &journal, &options)?;
        if !found.must_stop.is_empty() {
            printer.important(&shown(&found));
            if !agreed(false, printer) {
                printer.important("this transaction was not rolled back");
                return Ok(ExitStatus::WrongUse);
            }
        }
    }
    let faults = Faults::from_environment();
    let done = take_back(&mut machine, &journal, &options, &faults, &mut |text| printer.say(text))?;
    match args.format {
        Format::Text => {
            printer.say(&format!("rolled back transaction {}", done.transaction));
            printer.say("to see what is still in force: nearmetal rollback --list");
        }
        Format::Json => {
            print(Some(done.transaction), (done.notes, done.left), printer);
        }
    }
    Ok(ExitStatus::Done)
}

/// What would be undone, a line each.
fn shown(found: &Preview) -> String {
    let lines = (1..).zip(&found.actions).map(|(number, action)| format!("\n  {number}. {action}"));
    format!("transaction {}{}", found.transaction, lines.collect::<String>())
}

/// The document of what was rolled back, and of what is left.
fn print(transaction: Option<u32>, (notes, left): (Vec<String>, Vec<String>), printer: &mut Printer) {
    let schema = ROLLBACK_SCHEMA.to_owned();
    let output = RollbackOutput { schema, ok: left.is_empty(), transaction, notes, left, checks: Vec::new() };
    printer.data(&serde_json::to_string_pretty(&output).unwrap_or_default());
}

/// Whether a change was begun, or is unfinished, that came after this moment.
///
/// # Errors
/// The journal cannot be read: nobody knows.
fn changed_since(journal: &Journal, moment: &str) -> Result<bool, ChangeError> {
    let comes_later =
        |of: &Transaction| of.is_unfinished() || (of.is_in_force() && of.header.started.as_str() > moment);
    Ok(journal.transactions()?.iter().any(comes_later))
}

/// The last transaction that put this plan in force, or began to.
fn in_force(journal: &Journal, plan: &PlanFile) -> Result<Option<u32>, ChangeError> {
    let holds = |transaction: &Transaction| {
        let open = transaction.is_in_force() || transaction.is_unfinished();
        open && transaction.header.purpose.plan() == Some(plan)
    };
    Ok(journal.transactions()?.iter().rev().find(|transaction| holds(transaction)).map(Transaction::number))
}

fn over_the_fleet(args: &Args, plan: &FleetPlanFile, printer: &mut Printer) -> ExitStatus {
    // Hosts have nobody to ask: they are told over ssh.
    if args.restart && !args.dry_run && !args.yes && somebody_is_there() {
        printer.important(&format!(
            "this shuts down what runs by the plan, on {} hosts one after the other",
            plan.hosts.len()
        ));
        if !agreed(false, printer) {
            printer.important("nothing was rolled back");
            return ExitStatus::WrongUse;
        }
    }
    let mut arguments = ["rollback", "--plan", "-", "--shutdown-timeout"].map(str::to_owned).to_vec();
    arguments.push(args.shutdown_timeout.to_string());
    arguments.extend(args.restart.then(|| "--restart".to_owned()));
    arguments.extend(args.keep_running.then(|| "--keep-running".to_owned()));
    arguments.extend(args.dry_run.then(|| "--dry-run".to_owned()));
    arguments.extend((args.format == Format::Json).then(|| "--format=json".to_owned()));
    // One host that cannot is no reason to leave the others as they are.
    let errand = Errand { arguments, reverse: true, stop_at_first: false };
    let outcomes = over_hosts::run(plan, &errand, printer);
    let done = if args.dry_run { "unchanged; what would be undone is above" } else { "as it was before" };
    over_hosts::show(&outcomes, done, "not as it was before", args.format, printer);
    over_hosts::status(&outcomes)
}
