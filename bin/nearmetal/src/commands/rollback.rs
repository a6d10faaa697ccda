//! `nearmetal rollback`.

use std::time::Duration;

use nearmetal_change::{
    ChangeError, Faults, HostIdentity, Machine, RollbackOptions, forget, rollback as take_back, rollback_fault_points,
};
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Libvirt;

use super::shared::{Format, StateArgs, refuse};
use crate::exit_status::ExitStatus;
use crate::job::outputs::{ROLLBACK_SCHEMA, RollbackOutput};
use crate::printer::Printer;

/// Undo the last apply or doctor --fix, from its journal
///
/// Restores the definitions, pools, settings and running state that were before, whether it ended or was killed at any
/// step. After a reboot, what the reboot itself has undone is only reported. A rollback that is killed is run again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The transaction [default: the unfinished one, or the last one in force]
    #[arg(long, value_name = "NUMBER")]
    transaction: Option<u32>,
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
    match run(&args, printer) {
        Ok(()) => Ok(ExitStatus::Done),
        Err(error) => Ok(refuse(printer, &error)),
    }
}

fn run(args: &Args, printer: &mut Printer) -> Result<(), ChangeError> {
    let journal = args.state.journal();
    if args.forget {
        let number = forget(&journal)?;
        printer.say(&format!("transaction {number} is given up: everything stays as it is now"));
        return Ok(());
    }
    let files = HostFs::live();
    let host = HostIdentity::of(&Host::read(&files));
    let mut libvirt = Libvirt::open(None)?;
    let mut machine = Machine::here(&files, &mut libvirt, host)?;
    let options = RollbackOptions {
        transaction: args.transaction,
        restart: args.restart,
        keep_running: args.keep_running,
        shutdown_timeout: Duration::from_secs(args.shutdown_timeout),
    };
    if args.list_fault_points {
        printer.data(&rollback_fault_points(&mut machine, &journal, &options)?.join("\n"));
        return Ok(());
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
    Ok(())
}
