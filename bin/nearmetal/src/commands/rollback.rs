//! `nearmetal rollback`.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_change::journal::Transaction;
use nearmetal_change::{
    AnyPlan, ChangeError, Faults, FleetPlanFile, HostIdentity, Journal, Machine, PlanFile, RollbackOptions, forget,
    rollback as take_back, rollback_fault_points,
};
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{Hypervisor, Libvirt};
use nearmetal_measure::take_back_leftovers;

use crate::exit_status::ExitStatus;
use crate::fleet::over_hosts::{self, Errand};
use crate::job::outputs::{ROLLBACK_SCHEMA, RollbackOutput};
use crate::printer::Printer;
use crate::refusal::{NoLibvirt, refuse};
use crate::state::{StateArgs, load_plan};
use crate::style::Format;

/// Undo the last apply, doctor --fix or change of a device, from its journal
///
/// Restores the definitions, pools, settings and running state that were before, whether it ended or was killed at any
/// step. First it takes back what a killed `nearmetal bench` left. After a reboot, what the reboot itself has undone is
/// only reported. A rollback that is killed is run again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The transaction [default: the unfinished one, or the last one in force]
    #[arg(long, value_name = "NUMBER")]
    transaction: Option<u32>,
    /// The transaction that put this plan in force; `-` reads the plan from stdin. With the plan of a fleet, on every host
    /// of it where it is in force, in the reverse order
    #[arg(long, value_name = "FILE", conflicts_with_all = ["transaction", "forget"])]
    plan: Option<PathBuf>,
    /// Shut guests down that run in the new form, and start those that ran before
    #[arg(long)]
    restart: bool,
    /// Let guests run on in the new form until they next stop
    #[arg(long, conflicts_with = "restart")]
    keep_running: bool,
    /// Give an unfinished transaction up: everything stays as it is now
    #[arg(long, conflicts_with_all = ["transaction", "restart", "keep_running"])]
    forget: bool,
    /// Seconds a guest may take to shut down
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    shutdown_timeout: u64,
    /// How it is shown
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
    let cleaned = if args.list_fault_points || args.forget { false } else { after_a_measurement(&args, printer)? };
    match run(&args, printer) {
        Ok(status) => Ok(status),
        Err(ChangeError::NothingToRollBack(_)) if cleaned => Ok(ExitStatus::Done),
        Err(error) => Ok(refuse(printer, &error)),
    }
}

/// Takes back what a measurement that was killed left: clones, pools, bridges, a paused guest.
fn after_a_measurement(args: &Args, printer: &mut Printer) -> anyhow::Result<bool> {
    let libvirt = || Libvirt::open(None).map(|libvirt| Box::new(libvirt) as Box<dyn Hypervisor>);
    let cleaned = take_back_leftovers(args.state.journal().state_directory(), &HostFs::live(), libvirt)?;
    if cleaned {
        printer.say("what a measurement left that did not end is taken back");
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
                printer.say("this plan is not in force here: nothing was changed");
                return Ok(ExitStatus::Done);
            }
        },
        None => {}
    }
    if args.forget {
        let number = forget(&journal)?;
        printer.say(&format!("transaction {number} is given up: everything stays as it is now"));
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
    let faults = Faults::from_environment();
    let done = take_back(&mut machine, &journal, &options, &faults, &mut |text| printer.say(text))?;
    match args.format {
        Format::Text => printer.say(&format!("transaction {} is taken back", done.transaction)),
        Format::Json => {
            let output = RollbackOutput {
                schema: ROLLBACK_SCHEMA.to_owned(),
                ok: true,
                transaction: done.transaction,
                notes: done.notes,
                checks: Vec::new(),
            };
            printer.data(&serde_json::to_string_pretty(&output).unwrap_or_default());
        }
    }
    Ok(ExitStatus::Done)
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
    let mut arguments = ["rollback", "--plan", "-", "--shutdown-timeout"].map(str::to_owned).to_vec();
    arguments.push(args.shutdown_timeout.to_string());
    arguments.extend(args.restart.then(|| "--restart".to_owned()));
    arguments.extend(args.keep_running.then(|| "--keep-running".to_owned()));
    arguments.extend((args.format == Format::Json).then(|| "--format=json".to_owned()));
    // One host that cannot is no reason to leave the others as they are.
    let errand = Errand { arguments, reverse: true, stop_at_first: false };
    let outcomes = over_hosts::run(plan, &errand, printer);
    over_hosts::show(&outcomes, "as it was before", "not as it was before", args.format, printer);
    over_hosts::status(&outcomes)
}
