//! `nearmetal verify`.

use std::path::PathBuf;
use std::time::Duration;

use nearmetal_change::verify::{Effort, TAINTS, Verification};
use nearmetal_change::{AnyPlan, ChangeError, FleetPlanFile, Journal, PlanFile};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::Libvirt;

use super::apply::show;
use crate::drift::{self, Outputs};
use crate::exit_status::ExitStatus;
use crate::fleet::over_hosts::{self, Errand};
use crate::printer::Printer;
use crate::read_back::{self, InForce};
use crate::refusal::refuse_beside;
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
    /// Check everything applied and fixed here, as when you name no domain; succeed if nothing is in force
    #[arg(long, conflicts_with_all = ["domains", "plan"])]
    all: bool,
    /// Stay until Ctrl-C, SIGTERM or SIGHUP. When libvirt reports that a guest started, restarted, stopped, or was tuned or
    /// redefined, check it within 5 seconds, if a PU is free and few guests start at once. Check everything at the
    /// beginning and every SECONDS (900 if not given). Also check everything after the connection to libvirt was lost and
    /// found again, and when PUs, memory, PCI functions or drives of the host come, go or change their driver. It reports a
    /// difference when a second look finds the same. While another nearmetal changes this machine or measures on it,
    /// nothing is checked until it has ended. It reports a guest that somebody paused after SECONDS, and a guest that an
    /// error paused at once. Guests are never made to read from their disks. The exit code is 3 if not everything in force
    /// could be checked
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "900", requires = "all",
          value_parser = clap::value_parser!(u64).range(60..=86_400), conflicts_with_all = ["deep", "agent_timeout", "format"])]
    watch: Option<u64>,
    /// Also write what was found for Prometheus: a file of its text format, replaced in one step, that the textfile
    /// collector of node_exporter reads; its name must end in .prom. It also counts the findings of `nearmetal doctor`. While another
    /// nearmetal changes this machine or measures on it, nothing is checked, and the file stays as it is
    #[arg(long, value_name = "FILE", requires = "all", value_parser = prometheus_file)]
    textfile: Option<PathBuf>,
    /// Also write each difference to the system's journal, with the fields NEARMETAL_DOMAIN, NEARMETAL_CHECK,
    /// NEARMETAL_PLANNED and NEARMETAL_FOUND. While another nearmetal changes this machine or measures on it, nothing is checked
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
    /// Seconds to wait for the guest's agent; 0 does not ask it. nearmetal asks the agent what the guest sees, and libvirt
    /// then marks the guest as tainted (custom-ga-command)
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
    let outputs = Outputs { textfile: args.textfile.clone(), journal: args.journal };
    if let Some(seconds) = args.watch {
        return drift::keep_watch(Duration::from_secs(seconds), args.state.journal(), outputs, printer);
    }
    // A measurement pauses guests, and a change is half made: nothing of that is drift. The next round comes.
    let at_work = || match outputs.are_wanted() {
        true => args.state.journal().at_work(&HostFs::live()).ok().flatten(),
        false => None,
    };
    if let Some(at_work) = at_work() {
        printer.important(&format!("{at_work}: nothing is checked until it has ended"));
        if args.format == Format::Json {
            show(&[], args.format, printer);
        }
        return Ok(ExitStatus::Done);
    }
    let mut found = Found::default();
    let status =
        run(&args, &mut found, printer).unwrap_or_else(|error| refuse_beside(printer, error, &args.state.journal()));
    let findings = outputs.textfile.as_ref().and_then(|_| drift::findings());
    // What has begun meanwhile may be all that was seen, and found.
    if let Some(at_work) = at_work() {
        printer.important(&format!("{at_work}: what was found is not written"));
        return Ok(ExitStatus::Done);
    }
    // Each is tried, whatever became of the other and of reading back. The file is written also where nothing could be read
    // back: one of yesterday would go on saying that all is well.
    let results = [
        outputs.write_figures(
            found.is_all.then_some(found.verifications.as_slice()),
            findings.as_ref(),
            std::time::SystemTime::now(),
        ),
        outputs.tell(&found.verifications),
    ];
    let failed: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
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

/// What was read back.
#[derive(Debug, Default)]
struct Found {
    verifications: Vec<Verification>,
    /// Whether that is all there was to read back.
    is_all: bool,
}

fn run(args: &Args, found: &mut Found, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    let given = args.plan.as_deref().map(load_plan).transpose()?;
    if let Some(AnyPlan::Fleet(plan)) = &given {
        return over_the_fleet(args, plan, printer);
    }
    let journal = args.state.journal();
    warn_of_unfinished(&journal, printer);
    let in_force = match given {
        Some(AnyPlan::Host(plan)) => {
            let all = journal.transactions().unwrap_or_default();
            InForce { plans: plans_of(args, &plan)?, all, ..InForce::default() }
        }
        _ => InForce::read(&journal, &args.domains, args.all)?,
    };
    if in_force.is_empty() {
        unfinished(args, &journal)?;
        printer.say("nothing is in force here: nothing to check");
        if args.format == Format::Json {
            show(&[], args.format, printer);
        }
        found.is_all = true;
        return Ok(ExitStatus::Done);
    }
    let kernel = HostFs::live();
    let mut libvirt = Libvirt::open(None)?;
    // What the kernel says can be told without it.
    let reached = in_force.reach_libvirt(&mut libvirt);
    let effort = Effort {
        read_in_guest: !args.no_load,
        agent: (args.agent_timeout > 0).then(|| Duration::from_secs(args.agent_timeout)),
        deep: args.deep,
        ..Effort::default()
    };
    if args.deep {
        printer.important(&format!("--deep asks QEMU through its monitor: {TAINTS}"));
    }
    let mut verifications = Vec::new();
    let mut host = None;
    for (domain, plan) in &in_force.plans {
        // Known to be there: the plan was chosen by it.
        let Some(placement) = plan.placement(domain) else { continue };
        let what = (plan, placement);
        verifications.push(read_back::guest_in_force(&kernel, &mut libvirt, what, &in_force.all, &effort, &mut host));
    }
    verifications.extend(read_back::settings(&kernel, &mut libvirt, &in_force)?);
    show(&verifications, args.format, printer);
    let mismatches: usize = verifications.iter().map(Verification::mismatches).sum();
    let waiting: usize = verifications.iter().map(Verification::waiting).sum();
    // Without libvirt nobody knows what waits for a start: that is shown, and neither journal nor metrics call it drift.
    reached?;
    found.verifications = verifications;
    unfinished(args, &journal)?;
    found.is_all = true;
    match (mismatches, in_force.plans.first()) {
        (0, _) if waiting > 0 => printer.say(&format!(
            "{waiting} checks wait for the guest's next start: shut it down and start it, or apply the plan again with --restart"
        )),
        (0, Some((domain, _))) => printer.say(&format!(
            "to measure what the plan is worth: nearmetal bench slice {domain} --scratch DEVICE --quick --pause"
        )),
        (0, None) => {}
        _ => printer.say(
            "to fix it, apply the plan again; if it still differs, apply it with --restart. To undo the last change: nearmetal \
             rollback --restart",
        ),
    }
    Ok(if mismatches > 0 { ExitStatus::Findings } else { ExitStatus::Done })
}

/// Where everything is meant, a transaction that did not end is an end of its own.
fn unfinished(args: &Args, journal: &Journal) -> Result<(), ChangeError> {
    if args.plan.is_none() && args.domains.is_empty() { read_back::ended(journal) } else { Ok(()) }
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
