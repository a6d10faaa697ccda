//! What the verbs that change a device share: show, ask, do, read back.

use nearmetal_change::devices::{DeviceJob, DevicePlan, carry_out};
use nearmetal_change::verify::Outcome;
use nearmetal_change::{ChangeError, Faults, HostIdentity, Machine, fault_points};
use nearmetal_host::ledger::{self, Ledger};
use nearmetal_host::{Host, HostFs};
use nearmetal_units::PciAddress;

use super::function;
use crate::consent::agreed;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::refusal::{NoLibvirt, refuse_beside, refuse_beside_a_measurement, refuse_dry_run_beside_a_measurement};
use crate::state::StateArgs;

/// How a change to a device is made.
#[derive(Debug, clap::Args)]
pub(super) struct CarryArgs {
    /// Show the changes and make none
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// For tests: print the points at which NEARMETAL_FAULT_AT (with NEARMETAL_TESTING=1) can end the process
    #[arg(long, hide_short_help = true)]
    list_fault_points: bool,
    #[command(flatten)]
    pub(super) state: StateArgs,
}

/// This machine as it is now.
pub(super) struct Now {
    pub(super) host: Host,
    pub(super) ledger: Ledger,
}

impl Now {
    fn read() -> Self {
        let fs = HostFs::live();
        let host = Host::read(&fs);
        let ledger = ledger::read(&fs, &host);
        Self { host, ledger }
    }
}

/// Makes a plan of what is found.
pub(super) type Planner<'a> = &'a dyn Fn(&Machine<'_>, &Now, PciAddress) -> Result<DevicePlan, ChangeError>;

/// Plans, shows, asks and carries out.
pub(super) fn carry(args: &CarryArgs, name: &str, planner: Planner<'_>, printer: &mut Printer) -> ExitStatus {
    let now = Now::read();
    let function = match function(&now.host, name) {
        Ok(function) => function,
        Err(problem) => {
            printer.important(&format!("error: {problem}"));
            return ExitStatus::WrongUse;
        }
    };
    match run(args, &now, function, planner, printer) {
        Ok(status) => status,
        Err(error) => refuse_beside(printer, error, &args.state.journal()),
    }
}

fn run(
    args: &CarryArgs,
    now: &Now,
    function: PciAddress,
    planner: Planner<'_>,
    printer: &mut Printer,
) -> Result<ExitStatus, ChangeError> {
    let journal = args.state.journal();
    let files = HostFs::live();
    // No guest is touched, and libvirt need not be there.
    let mut libvirt = NoLibvirt { reason: "libvirt is not asked about devices".to_owned() };
    let mut machine = Machine::here(&files, &mut libvirt, HostIdentity::of(&now.host))?;
    let plan = planner(&machine, now, function)?;
    if args.list_fault_points {
        printer.data(&fault_points(&plan.changes).join("\n"));
        return Ok(ExitStatus::Done);
    }
    if plan.changes.is_empty() {
        printer.say(&format!("{}: already so, nothing changed", plan.task));
        return Ok(ExitStatus::Done);
    }
    printer.say(if args.dry_run { "it would make these changes:" } else { "changes to make:" });
    for (number, change) in (1..).zip(&plan.changes) {
        printer.say(&format!("  {number}. {change}"));
    }
    for note in &plan.notes {
        printer.say(&format!("  ({note})"));
    }
    if args.dry_run {
        refuse_dry_run_beside_a_measurement(&journal, &files)?;
        return Ok(ExitStatus::Done);
    }
    refuse_beside_a_measurement(&journal, &files)?;
    if !agreed(args.yes, printer) {
        printer.important("nothing changed");
        return Ok(ExitStatus::WrongUse);
    }
    let mut plan_again = |machine: &mut Machine<'_>| planner(machine, &Now::read(), function);
    let faults = Faults::from_environment();
    let mut say = |text: &str| printer.say(text);
    let job = DeviceJob { journal: &journal, plan: &plan, plan_again: &mut plan_again, faults: &faults, say: &mut say };
    let (transaction, found) = carry_out(&mut machine, job)?;
    for check in &found.checks {
        let text = check.found.as_deref().unwrap_or("?");
        match &check.outcome {
            Outcome::Ok => printer.data(&format!("{}: {text}, read back", check.subject)),
            Outcome::Mismatch => printer.data(&format!("{}: {text}, not {}", check.subject, check.planned)),
            Outcome::CannotTell { why } => printer.data(&format!("{}: cannot tell ({why})", check.subject)),
        }
    }
    printer.say(&format!("transaction {transaction}: `nearmetal rollback` undoes it"));
    Ok(if found.mismatches() > 0 { ExitStatus::Findings } else { ExitStatus::Done })
}
