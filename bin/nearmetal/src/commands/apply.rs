//! `nearmetal apply`.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_change::verify::{Effort, Verification};
use nearmetal_change::{
    AnyPlan, Apply, ApplyOptions, Change, ChangeError, Faults, HostIdentity, Journal, Machine, PlanFile, changes,
    fault_points,
};
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Libvirt;
use nearmetal_place::Placement;

use crate::consent::agreed;
use crate::exit_status::ExitStatus;
use crate::fleet::apply::{self as fleet_apply, Order};
use crate::guest_profile::Denied;
use crate::printer::Printer;
use crate::read_back;
use crate::refusal::{refuse_beside, refuse_beside_a_measurement};
use crate::state::{StateArgs, load_plan};
use crate::steps::{self, Steps};
use crate::style::Format;

/// Apply a plan, journal every change, and read the result back
///
/// Checks everything first, and changes nothing if anything is in the way. Writes each change to the journal before
/// making it, so `nearmetal rollback` undoes all of it, even after a crash or a power loss. At the end it reads
/// everything back from the kernel; exit code 1 means that something is not as planned.
///
/// A fleet's plan is applied host by host. First every host is asked whether it can; then each is changed and read back.
/// The first host that is not as planned is rolled back, and nearmetal stops there.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan that `nearmetal plan -o` wrote; `-` for stdin
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Check everything, show the changes, and make none; this takes root, too. Exit with 3 if guests would have to restart
    /// (after showing what --restart would do), while a measurement runs, and if a killed one has left something
    #[arg(long, conflicts_with_all = ["yes", "list_fault_points"])]
    dry_run: bool,
    /// Shut down running guests (agent, then ACPI, never by force), all of them before any starts again
    #[arg(long, conflicts_with = "live_only")]
    restart: bool,
    /// Change only what can change while guests run; the rest takes effect at their next start
    #[arg(long)]
    live_only: bool,
    /// Start guests that are off
    #[arg(long)]
    start: bool,
    /// Seconds a guest may take to shut down
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    shutdown_timeout: u64,
    /// Seconds to wait for the agent of a guest that was just started; without an agent, less can be read back
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    agent_timeout: u64,
    /// Roll back if the read-back differs from the plan. A fleet's plan always does, for that host only
    #[arg(long)]
    rollback_on_mismatch: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
    /// Output format of the read-back; with --dry-run, of the changes
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print a line of JSON for each step as it happens; the last one has the read-back. Only for the plan of one host
    #[arg(long, conflicts_with_all = ["dry_run", "list_fault_points", "format"])]
    progress: bool,
    /// For tests: print the points at which NEARMETAL_FAULT_AT (with NEARMETAL_TESTING=1) can end the process
    #[arg(long, hide_short_help = true)]
    list_fault_points: bool,
    #[command(flatten)]
    state: StateArgs,
}

impl Args {
    /// What a fleet's hosts are told of it.
    fn order(&self) -> Order {
        Order {
            dry_run: self.dry_run,
            restart: self.restart,
            live_only: self.live_only,
            start: self.start,
            shutdown_timeout: self.shutdown_timeout,
            agent_timeout: self.agent_timeout,
            yes: self.yes,
            format: self.format,
        }
    }
}

/// Runs the command.
pub(crate) fn apply(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match run(&args, printer) {
        Ok(status) => Ok(status),
        Err(error) => Ok(refuse_beside(printer, error, &args.state.journal())),
    }
}

fn run(args: &Args, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    let plan = match load_plan(&args.plan)? {
        AnyPlan::Host(plan) => *plan,
        AnyPlan::Fleet(_) if args.progress => {
            printer.important("error: --progress is for the plan of one host, and this is a fleet's: leave it out");
            return Ok(ExitStatus::WrongUse);
        }
        AnyPlan::Fleet(plan) => return Ok(fleet_apply::run(&args.order(), &plan, printer)),
    };
    let files = HostFs::live();
    let host = HostIdentity::of(&Host::read(&files));
    plan.check_host(&host)?;
    let mut libvirt = Libvirt::open(None)?;
    if let Some(denied) = Denied::here(&files, &mut libvirt) {
        denied.refuse(&plan.plan)?;
    }
    let journal = args.state.journal();
    let options = ApplyOptions {
        restart: args.restart,
        live_only: args.live_only,
        start: args.start,
        shutdown_timeout: Duration::from_secs(args.shutdown_timeout),
        rollback_on_mismatch: args.rollback_on_mismatch,
    };
    let mut machine = Machine::here(&files, &mut libvirt, host)?;
    let list = match changes(&mut machine, &journal, &plan, &options) {
        // Whoever only looks sees what it would be, and then what that takes.
        Err(why @ ChangeError::RestartNeeded { .. }) if args.dry_run => {
            let options = ApplyOptions { restart: true, ..options };
            if let Ok(list) = changes(&mut machine, &journal, &plan, &options) {
                shown_dry(args.format, &list, printer);
            }
            return Err(why);
        }
        other => other?,
    };
    if args.list_fault_points {
        printer.data(&fault_points(&list).join("\n"));
        return Ok(ExitStatus::Done);
    }
    if args.dry_run {
        shown_dry(args.format, &list, printer);
    }
    if !list.is_empty() {
        refuse_beside_a_measurement(&journal, &files)?;
    }
    if args.dry_run {
        return Ok(ExitStatus::Done);
    }
    if !list.is_empty() && !agreed_to(args, &list, printer) {
        printer.important("nothing was changed");
        return Ok(ExitStatus::WrongUse);
    }
    let agent = Duration::from_secs(args.agent_timeout);
    let mut steps = args.progress.then(|| Steps::begin(&list, printer));
    let mut say = |text: &str| match &mut steps {
        Some(steps) => steps.say(text, printer),
        None => printer.say(text),
    };
    let applied = put_in_force(&mut machine, &files, &journal, &plan, &options, agent, &mut say)?;
    let mismatches: usize = applied.verifications.iter().map(Verification::mismatches).sum();
    match steps {
        Some(_) => steps::end(&applied, mismatches, printer),
        None => show(&applied.verifications, args.format, printer),
    }
    // What was started with the new definition has to stop for the old one.
    let undo = if args.restart || args.start { "nearmetal rollback --restart" } else { "nearmetal rollback" };
    match applied.transaction {
        None if mismatches > 0 => printer.important(&format!(
            "nothing changed, but {mismatches} checks differ from the plan in things that this cannot set: {}",
            if args.restart {
                "plan again"
            } else {
                "apply it with --restart, which shuts the guest down and starts it again"
            }
        )),
        None => printer.say(&nothing_changed(&applied.verifications)),
        Some(number) if applied.taken_back => printer.say(&format!("rolled back transaction {number}")),
        Some(number) if mismatches > 0 => printer
            .important(&format!("{mismatches} checks differ from the plan; `{undo}` undoes transaction {number}")),
        Some(number) => {
            printer.say(&format!("applied (transaction {number}); `{undo}` undoes it"));
            printer.say("to check later that it still holds: nearmetal verify");
        }
    }
    Ok(if mismatches > 0 { ExitStatus::Findings } else { ExitStatus::Done })
}

/// Where nothing had to be changed and nothing differs.
fn nothing_changed(verifications: &[Verification]) -> String {
    let sum = |of: fn(&Verification) -> usize| verifications.iter().map(of).sum::<usize>();
    match (sum(Verification::waiting), sum(Verification::untold)) {
        (0, 0) => "everything was already as planned: nothing changed".to_owned(),
        (0, untold) => format!("nothing changed: nothing differs from the plan, but {untold} checks could not be read"),
        (waiting, _) => format!("nothing changed: {waiting} checks wait for the guest's next start"),
    }
}

/// Shows what would be done.
fn shown_dry(format: Format, list: &[Change], printer: &mut Printer) {
    printer.data(&match format {
        Format::Text => numbered(list),
        Format::Json => steps::dry_run(list),
    });
}

/// Shows what is about to be done, and asks.
fn agreed_to(args: &Args, list: &[Change], printer: &mut Printer) -> bool {
    printer.say("changes to make:");
    printer.say(&numbered(list));
    agreed(args.yes, printer)
}

/// Changes, one a line.
fn numbered(list: &[Change]) -> String {
    if list.is_empty() {
        return "  none: there is nothing to change (`nearmetal verify` compares what runs with the plan)".to_owned();
    }
    let lines: Vec<String> = (1..).zip(list).map(|(number, change)| format!("  {number}. {change}")).collect();
    lines.join("\n")
}

fn put_in_force(
    machine: &mut Machine<'_>,
    files: &HostFs,
    journal: &Journal,
    plan: &PlanFile,
    options: &ApplyOptions,
    agent: Duration,
    say: &mut dyn FnMut(&str),
) -> Result<nearmetal_change::Applied, ChangeError> {
    // A guest that was just started needs time until its agent answers.
    let agent = if options.restart || options.start { Some(agent) } else { Effort::default().agent };
    let effort = Effort { agent, ..Effort::default() };
    let mut read_back = |machine: &mut Machine<'_>, plan: &PlanFile, placement: &Placement| {
        // Read anew for each guest: the plan changes it meanwhile.
        let mut host = None;
        let mut verification = read_back::guest(files, machine.hypervisor, plan, placement, &effort, &mut host);
        // As `verify` sees it right after: what somebody else moved waits for nothing.
        if let (true, Ok(all)) = (options.live_only, journal.transactions()) {
            verification.await_restart(&nearmetal_change::awaits_start(machine, &all, placement));
        }
        verification
    };
    let faults = Faults::from_environment();
    let job = Apply { journal, plan, options, faults: &faults, read_back: &mut read_back, say };
    nearmetal_change::apply(machine, job)
}

/// Prints verifications: one document for one guest, a list for several.
pub(super) fn show(verifications: &[Verification], format: Format, printer: &mut Printer) {
    match (format, verifications) {
        (Format::Text, _) => {
            let all: Vec<String> = verifications.iter().map(ToString::to_string).collect();
            printer.data(&all.join("\n"));
        }
        (Format::Json, [one]) => printer.data(&serde_json::to_string_pretty(one).unwrap_or_default()),
        (Format::Json, all) => printer.data(&serde_json::to_string_pretty(all).unwrap_or_default()),
    }
}
