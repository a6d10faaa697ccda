//! `nearmetal tune`.

mod arms;
mod factors;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{Args as _, FromArgMatches as _};
use nearmetal_change::PlanFile;
use nearmetal_host::{Host, HostFs};
use nearmetal_load::{CommandJob, Kit, Shape, WorksOn};
use nearmetal_measure::{
    Experiment, MeasureError, OnScratch, Pairing, TUNE_LOOKS, TuneOn, TuneRequest, least_tune_seconds,
};
use nearmetal_results::{Measurement, TuneVerdict};
use nearmetal_stats::MOST_FACTORS;
use nearmetal_units::Bytes;

use self::arms::{Arms, CROSSED, Ground};
use self::factors::FACTORS;
use super::clones::CloneArgs;
use super::keep::{ended, write};
use super::kit::{FoundKit, KitArgs};
use super::loads_image::needed_by;
use super::measuring::{need_root, perform};
use super::planned::shape;
use super::rounds::block_size;
use super::workload::{Chosen, USUAL, one};
use crate::commands::{apply, plan};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::job::measurement::text;
use crate::printer::Printer;
use crate::results_store::StoreArgs;
use crate::signals::stop_was_asked;
use crate::state::StateArgs;

/// Seconds of one sample.
const SECONDS: u32 = 10;
/// The same with --quick.
const QUICK_SECONDS: u32 = 3;
/// Fresh rounds at most.
const PAIRS: u32 = 20;
/// The same with --quick.
const QUICK_PAIRS: u32 = 6;

/// Find the best plan for a VM on this machine by measuring, within a stated time
///
/// Composes the plans that are possible for the VM: pages, pins, disk engine, iothreads and their PUs, the emulator
/// thread's PUs, siblings of a core, guest cells, who polls before a vCPU sleeps, and with --command the queues of its
/// interfaces, each as the rules have it and otherwise. If the budget allows, all factors that can be combined form a
/// fraction of 8 or 16 combinations. If not, only the first four do, and the others race alone. A floating VM and the
/// engine that is left race too. All of them, the VM as found and as virt-install would set its disk, race in clones on one
/// scratch device: in every round each runs once, in random order. Those shown worse drop out, at an error probability that
/// you state beforehand. The winner is measured again on fresh pairs against the VM as found, the plan by rule and the bare
/// slice. If it was not shown faster than the VM as found, nearmetal says: leave it as it is.
///
/// With --command the plans race in the VM itself: for each sample it is shut down, started as one of the plans has it, and runs the
/// command by its guest agent. Its definition stays as it is, and at the end it runs as before. No bare slice runs that command, so
/// none is compared. A VM that does not shut down is never powered off: nearmetal stops and says so.
///
/// It ends within the budget, boots and the writing of up to 128 GiB of the device included; only a sample that hangs can
/// exceed it. The winner is written as a plan, which `nearmetal apply` takes, and kept: `nearmetal plan` uses it for this
/// VM from then on, and names the run. How long the host polls is not tuned, and the network only with --command. The
/// scratch device's contents are lost; it must be empty, and should be of the kind that the VM's disk is on. `nearmetal
/// bench resume` goes on with a tune that was interrupted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nearmetal tune web1 --dry-run                                    what would race, and how long that takes
  nearmetal tune web1 --scratch /dev/nvme1n1 --budget 30m --pause
  nearmetal tune web1 --scratch /dev/nvme1n1 --pause --apply --restart
  nearmetal tune web1 --command 'make -C /src clean all' --restart --budget 2h")]
#[command(group = clap::ArgGroup::new("restarts").multiple(true))]
pub(crate) struct Args {
    /// The VM
    #[arg(value_name = "VM")]
    domain: String,
    /// Whole block device to measure on; ITS CONTENTS ARE LOST
    #[arg(long, value_name = "DEVICE", required_unless_present_any = ["dry_run", "command"])]
    scratch: Option<String>,
    /// The time for all of it: seconds, or with `m` or `h` behind the number
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = super::race::budget)]
    budget: u32,
    /// Probability in percent that the best plan is dropped in the race by mistake
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = super::race::error_percent)]
    error: f64,
    /// What is run
    #[arg(long, value_name = "LOAD", value_parser = one(|load| load.on != WorksOn::Files), default_value = USUAL)]
    load: Chosen,
    #[command(flatten)]
    kit: KitArgs,
    /// Race in the VM itself, by the time it takes to run this command in its shell; needs --restart and the VM's guest agent
    #[arg(
        long,
        value_name = "COMMAND",
        group = "restarts",
        requires = "restart",
        conflicts_with_all = ["scratch", "load", "kit", "block_size", "pause", "appliance"],
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    command: Option<String>,
    /// With --command: take it for hung after this time
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "command", value_parser = super::race::budget)]
    command_limit: u32,
    /// Block size [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = block_size)]
    block_size: Option<Bytes>,
    /// Take samples of 3 s instead of 10 s, and 6 fresh rounds at most instead of 20
    #[arg(long)]
    quick: bool,
    /// Leave a factor as the rules have it; repeat it for more
    #[arg(long, value_name = "FACTOR", value_parser = FACTORS.map(|factor| factor.id))]
    without: Vec<String>,
    /// Show the factors, the plans and the time they take, and measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Write the winner's plan here [default: VM.plan.json in the directory you are in]
    #[arg(long, value_name = "FILE")]
    plan_out: Option<PathBuf>,
    /// Apply the winner's plan, as `nearmetal apply --yes` does, and read it back
    #[arg(long, group = "restarts")]
    apply: bool,
    /// Allow the VM to be shut down and started: with --command for each sample, with --apply as its plan needs
    #[arg(long, requires = "restarts")]
    restart: bool,
    /// Seed of the order and of the intervals' bootstrap; the same seed gives the same order
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Write all runs here as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    state: StateArgs,
}

/// Runs the command.
pub(crate) fn tune(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let fs = HostFs::live();
    let kit = args.kit.timed(&args.load)?;
    let found = plan::inputs(std::slice::from_ref(&args.domain), &[])?;
    let missing = || WrongUse(format!("libvirt has no VM `{}`", args.domain));
    let ground = Ground::of(Host::read(&fs), found, args.command.is_some())?.ok_or_else(missing)?;
    let journal = args.state.journal();
    let (arms, request) = within_budget(args, kit.as_ref().map(|kit| kit.kit), &fs, &ground)?;
    if args.dry_run {
        printer.data(&listed(&request));
        return Ok(ExitStatus::Done);
    }
    need_root("starts guests and drops caches", ", or see what it would do with --dry-run")?;
    let conditions = args.clones.conditions(args.seed, &fs, &journal)?;
    let conditions = nearmetal_measure::Conditions {
        loads: if args.command.is_none() { needed_by(&args.load)? } else { None },
        kit: kit.as_ref().map(FoundKit::packed).transpose()?,
        store: Some(args.store.path(&journal)),
        plan: arms.plans.first().map(|plan| plan.created.clone()),
        ..conditions
    };
    let experiment = Experiment::Tune(Box::new(TuneRequest { conditions, ..request }));
    let measurement = perform(&experiment, printer)?;
    if let Some(path) = &args.output {
        write(&measurement, path)?;
    }
    printer.data(&text(&measurement)?);
    let status = ended(&measurement, printer);
    if stop_was_asked() {
        // It came when the last sample was done. Nothing is changed against somebody's wish to end.
        return Err(MeasureError::Stopped.into());
    }
    let Measurement::Results(results) = &measurement else { return Ok(status) };
    match results.tune.as_ref().map(|tuning| &tuning.verdict) {
        Some(TuneVerdict::Use { arm }) => {
            let of = |(_, plan): &(&nearmetal_measure::TuneArm, &PlanFile)| (*plan).clone();
            let winner = arms.arms.iter().zip(&arms.plans).find(|(own, _)| own.id == *arm).as_ref().map(of);
            use_winner(args, winner, printer).map(|applied| applied.unwrap_or(status))
        }
        _ => {
            printer.say("leave the VM as it is: no plan was written");
            Ok(status)
        }
    }
}

/// Writes the winner's plan, and applies it if that was asked for.
fn use_winner(args: &Args, winner: Option<PlanFile>, printer: &mut Printer) -> anyhow::Result<Option<ExitStatus>> {
    let Some(plan) = winner else { return Ok(None) };
    let path = args.plan_out.clone().unwrap_or_else(|| PathBuf::from(format!("{}.plan.json", args.domain)));
    plan.save(&path)?;
    if !args.apply {
        printer.say(&format!("to apply it: nearmetal apply {} --restart", path.display()));
        printer.say("`nearmetal plan` uses it for this VM from now on");
        return Ok(None);
    }
    let mut words = vec![path.into_os_string(), "--yes".into()];
    words.extend(args.restart.then(|| "--restart".into()));
    let state = args.state.journal().state_directory().as_os_str().to_owned();
    words.extend(["--state".into(), state]);
    let command = apply::Args::augment_args(clap::Command::new("apply").no_binary_name(true));
    let matches = command.try_get_matches_from(words)?;
    Ok(Some(apply::apply(apply::Args::from_arg_matches(&matches)?, printer)?))
}

/// All factors are crossed if the budget is so many times the least: boots may be slower than was taken, and a command's time nobody
/// knows.
const AMPLE: (u32, u32) = (2, 1);
/// Factors race alone if the budget is so much of the least, for the same reason: a tune that is refused after all boots has told nothing.
const ROOMY: (u32, u32) = (3, 2);

/// The plans that race: all factors crossed that can be, or the first four and each other alone, or fewer, as the budget allows.
fn within_budget(args: &Args, kit: Option<Kit>, fs: &HostFs, ground: &Ground) -> anyhow::Result<(Arms, TuneRequest)> {
    let composed = |without: &[String], crossed: usize| -> anyhow::Result<(Arms, TuneRequest)> {
        let arms = ground.arms(without, crossed)?;
        let arms = arms.map_err(|why| WrongUse(format!("`{}` cannot be tuned: {why}", args.domain)))?;
        let request = request(args, kit, fs, &arms)?;
        Ok((arms, request))
    };
    let fits = |request: &TuneRequest, (times, of): (u32, u32)| {
        least_tune_seconds(request).saturating_mul(times) / of <= args.budget
    };
    let (arms, request) = composed(&args.without, MOST_FACTORS)?;
    if arms.factors.len() > CROSSED && fits(&request, AMPLE) {
        return Ok((arms, request));
    }
    let (mut arms, mut request) = composed(&args.without, CROSSED)?;
    let mut beyond: Vec<String> = Vec::new();
    // The last one first: what stands first decides more, or on more machines.
    while let (false, Some(last)) = (fits(&request, ROOMY), arms.alone.last()) {
        beyond.push(last.factor.id.clone());
        let without: Vec<String> = args.without.iter().chain(&beyond).cloned().collect();
        (arms, request) = composed(&without, CROSSED)?;
    }
    for left in [&mut arms.left_out, &mut request.left_out] {
        for own in left.iter_mut().filter(|own| beyond.contains(&own.what)) {
            own.why = "the budget is too short for it".to_owned();
        }
    }
    Ok((arms, request))
}

/// What is to be measured, without the conditions.
fn request(args: &Args, kit: Option<Kit>, fs: &HostFs, arms: &Arms) -> anyhow::Result<TuneRequest> {
    let missing = || WrongUse(format!("the planner did not place `{}`", args.domain));
    let placement = arms.placement(&args.domain).ok_or_else(missing)?.clone();
    let change = arms.plans.first().and_then(|plan| plan.domains.first()).ok_or_else(missing)?;
    let rounds = if args.quick { QUICK_PAIRS } else { PAIRS };
    let (guest, xml_found) = (args.domain.clone(), change.xml_before.clone());
    let on = match &args.command {
        Some(command) => {
            let command = CommandJob { command: command.clone(), limit: args.command_limit };
            TuneOn::Itself { guest, placement, xml_found, command, rounds, quick: args.quick }
        }
        None => {
            let shape = Shape {
                size: args.block_size.unwrap_or(args.load.usual_size()),
                seconds: if args.quick { QUICK_SECONDS } else { SECONDS },
                kit,
                ..shape(&change.xml_after, &placement, &args.load, fs)?
            };
            let pairing = Pairing {
                paired: args.load.of(&shape),
                rounds,
                resolve: None,
                same_arm_pairs: 0,
                single_shot: Vec::new(),
                memory: Vec::new(),
                quick: args.quick,
                accesses: true,
                reasons: false,
            };
            TuneOn::Scratch(OnScratch {
                guest,
                placement,
                xml_found,
                xml_planned: change.xml_after.clone(),
                scratch: args.scratch.clone().unwrap_or_default(),
                pairing,
            })
        }
    };
    Ok(TuneRequest {
        on,
        factors: arms.factors.clone(),
        alone: arms.alone.clone(),
        arms: arms.arms.clone(),
        left_out: arms.left_out.clone(),
        budget: args.budget,
        error: args.error / 100.0,
        looks: TUNE_LOOKS,
        conditions: super::clones::none(args.seed, fs, &args.state.journal()),
    })
}

/// What would be measured.
fn listed(request: &TuneRequest) -> String {
    let mut text = format!("{} factors:\n", request.factors.len());
    for factor in &request.factors {
        let about = FACTORS.iter().find(|one| one.id == factor.id).map_or("", |one| one.about);
        text.push_str(&format!("  {:10} {} or {}  ({about})\n", factor.id, factor.levels[0], factor.levels[1]));
    }
    text.push_str(&format!(
        "{} plans, beside the VM as found and as virt-install sets its disk:\n",
        request.arms.len()
    ));
    for arm in &request.arms {
        let part = if arm.levels.is_some() { "" } else { "  (beside the fraction)" };
        text.push_str(&format!("  {:72} {}{part}\n", arm.title, arm.id));
    }
    if !request.alone.is_empty() {
        let alone: Vec<&str> = request.alone.iter().map(|own| own.factor.id.as_str()).collect();
        text.push_str(&format!(
            "alone, since they hang on another factor, their combinations do not differ, or the budget is too short to cross all: {}\n",
            alone.join(", ")
        ));
    }
    if !request.left_out.is_empty() {
        text.push_str("not tuned:\n");
    }
    for left in &request.left_out {
        text.push_str(&format!("  {:36} {}\n", left.what, left.why));
    }
    let least = least_tune_seconds(request);
    let beside = match request.on {
        TuneOn::Scratch(_) => "",
        TuneOn::Itself { .. } => ", beside the command's own time",
    };
    text.push_str(&format!("takes at least {} minutes, if a boot takes 8 s{beside}", least.div_ceil(60)));
    text.push_str(&match request.budget < least {
        true => format!("; the budget is {} s: raise --budget, or leave factors out (--without)\n", request.budget),
        false => format!("; the budget is {} minutes, and it ends within it\n", request.budget / 60),
    });
    text
}
