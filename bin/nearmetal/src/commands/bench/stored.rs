//! `nearmetal bench history`, `show`, `compare` and `resume`: what was measured before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nearmetal_load::Workload;
use nearmetal_measure::{Experiment, Over};
use nearmetal_results::{Comparison, Entry, Environment, Estimate, Results, State, Store, compare};
use nearmetal_stats::ShownRatio;
use serde_json::{Map, Value};

use super::history_output;
use super::keep::ended;
use super::measuring::{need_root, perform};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::job::measurement;
use crate::printer::Printer;
use crate::results_store::FromArgs;
use crate::style::Format;

/// List what was measured of a VM: when, on what kernel and QEMU, by which plan, and how it ended
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench history web1")]
pub(super) struct HistoryArgs {
    /// The VM [default: all of them]
    #[arg(value_name = "VM")]
    domain: Option<String>,
    /// Output format; json also has the ratios of each measurement
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    #[command(flatten)]
    from: FromArgs,
}

/// Runs the command.
pub(super) fn history(args: &HistoryArgs, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if args.format == Format::Json {
        let output = history_output::read(&args.from, args.domain.as_deref())?;
        printer.data(&serde_json::to_string_pretty(&output)?);
        return Ok(ExitStatus::Done);
    }
    let entries = args.from.open()?.entries(args.domain.as_deref())?;
    if entries.is_empty() {
        let of = args.domain.as_ref().map_or_else(String::new, |domain| format!(" of `{domain}`"));
        printer.say(&format!("nothing was measured{of} here yet"));
        return Ok(ExitStatus::Done);
    }
    let lines: String = entries.iter().map(|entry| line(entry) + "\n").collect();
    let head = "  id  when                  what       VMs              kernel               QEMU      runs  plan of               result\n";
    printer.data(&format!("{head}{lines}"));
    Ok(ExitStatus::Done)
}

fn line(entry: &Entry) -> String {
    let result = match (&entry.state, &entry.winner) {
        (State::Done, Some(winner)) => format!("{winner} won"),
        (State::Done, None) => "done".to_owned(),
        (State::Failed(why), _) => format!("failed: {why}; `nearmetal bench resume {}` goes on", entry.id),
        (State::Running, _) => {
            format!("running, or killed: `nearmetal bench resume {}` goes on once nothing measures", entry.id)
        }
    };
    let lab = if matches!(entry.environment, Environment::Lab { .. }) { " (lab: emulated time)" } else { "" };
    format!(
        "{:>4}  {:20}  {:9}  {:15}  {:19}  {:8}  {:>4}  {:20}  {result}{lab}",
        entry.id,
        entry.created,
        entry.experiment,
        entry.guests.join(","),
        entry.kernel,
        entry.qemu.split_whitespace().next().unwrap_or("unknown"),
        entry.runs,
        entry.plan.as_deref().unwrap_or("unknown"),
    )
}

/// A measurement, and where it is to go.
#[derive(Debug, clap::Args)]
struct OneArgs {
    /// Its number, as `nearmetal bench history` lists it
    #[arg(value_name = "ID")]
    id: i64,
    /// Write its document here as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    from: FromArgs,
}

impl OneArgs {
    /// Writes the document where it was asked for, and shows the measurement.
    fn shown(&self, store: &Store, printer: &mut Printer) -> anyhow::Result<()> {
        let measurement = store.measurement(self.id)?;
        if let (Some(path), Some(document)) = (&self.output, store.document(self.id)?) {
            nearmetal_host::files::write_atomic(path, document)?;
        }
        printer.data(&measurement::text(&measurement)?);
        Ok(())
    }
}

/// Show a measurement again
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench show 12")]
pub(super) struct ShowArgs {
    #[command(flatten)]
    one: OneArgs,
}

/// Runs the command.
pub(super) fn show(args: &ShowArgs, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.one.shown(&args.one.from.open()?, printer)?;
    Ok(ExitStatus::Done)
}

/// Go on with a measurement that was interrupted, in the same order
///
/// What was written down stays; the round that was interrupted is run again. The VM, its plan, the kernel and everything
/// that was named then must still be there.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench resume 12")]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    one: OneArgs,
}

/// Runs the command.
pub(super) fn resume(args: &ResumeArgs, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let one = &args.one;
    let store = one.from.open()?;
    let entry = store.entry(one.id)?;
    let id = entry.id;
    if entry.state == State::Done {
        return Err(WrongUse(format!("measurement {id} is complete: `nearmetal bench show {id}` shows it")).into());
    }
    let Some(request) = &entry.request else {
        return Err(WrongUse(format!("measurement {id} is of a version that kept no request: measure anew")).into());
    };
    let mut experiment = Experiment::parse(&entry.experiment, request)?;
    need_root("starts guests and drops caches", "")?;
    drop(store);
    let conditions = experiment.conditions_mut();
    (conditions.resume, conditions.store) = (Some(id), Some(one.from.path()));
    let measurement = perform(&experiment, printer)?;
    one.shown(&one.from.open()?, printer)?;
    Ok(ended(&measurement, printer))
}

/// Say what changed between two measurements of the same kind
///
/// Shows the ratios of both side by side, and whether their intervals are apart. Two measurements of different experiments
/// or workloads, or one of the lab and one of silicon, are refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench compare 12 15")]
pub(super) struct CompareArgs {
    /// The earlier one, by its number
    #[arg(value_name = "A")]
    before: i64,
    /// The later one, by its number
    #[arg(value_name = "B")]
    after: i64,
    #[command(flatten)]
    from: FromArgs,
}

/// Runs the command.
pub(super) fn compare_two(args: &CompareArgs, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let store = args.from.open()?;
    let entry = |id| store.entry(id);
    let (before, after) = (entry(args.before)?, entry(args.after)?);
    let refused = |one: &str, other: &str| {
        WrongUse(format!("{} is of {one} and {} of {other}: they cannot be compared", before.id, after.id))
    };
    if before.experiment != after.experiment {
        let name = |entry: &Entry| format!("the experiment `{}`", entry.experiment);
        return Err(refused(&name(&before), &name(&after)).into());
    }
    if before.environment != after.environment {
        let name = |environment: &Environment| match environment {
            Environment::Silicon => "silicon".to_owned(),
            Environment::Lab { machine } => format!("the lab machine {machine}, whose time is emulated"),
        };
        return Err(refused(&name(&before.environment), &name(&after.environment)).into());
    }
    let (old_results, new_results) = (store.results(before.id)?, store.results(after.id)?);
    let (old, new) = (compare(&old_results)?, compare(&new_results)?);
    let same = |one: &Comparison, other: &Comparison| {
        (one.workload.but_for_its_start(), one.count, &one.metric, &one.subject.id, &one.reference.id)
            == (other.workload.but_for_its_start(), other.count, &other.metric, &other.subject.id, &other.reference.id)
    };
    let rates = |one: &&Comparison| Some(&one.metric) == one.workload.rate().as_ref();
    let mut lines = String::new();
    for one in old.iter().filter(rates) {
        if let Some(other) = new.iter().find(|other| same(one, other)) {
            lines.push_str(&changed(one, other));
        }
    }
    if lines.is_empty() {
        let loads = |all: &[Comparison]| {
            let mut labels: Vec<String> = all.iter().map(|one| one.workload.label()).collect();
            labels.dedup();
            labels.join("; ")
        };
        return Err(WrongUse(format!(
            "{} and {} have no workload in common: one ran {}, the other {}{}",
            before.id,
            after.id,
            loads(&old),
            loads(&new),
            differences(&workloads(&old), &workloads(&new))
        ))
        .into());
    }
    let mut text = String::new();
    for (what, one, other) in [
        ("kernel", Some(before.kernel.clone()), Some(after.kernel.clone())),
        ("QEMU", Some(before.qemu.clone()), Some(after.qemu.clone())),
        ("plan of", before.plan.clone(), after.plan.clone()),
        ("VMs", Some(before.guests.join(", ")), Some(after.guests.join(", "))),
    ] {
        let word = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        let (one, other) = (word(&one), word(&other));
        text.push_str(&match one == other {
            true => format!("{what}: {one}, the same\n"),
            false => format!("{what}: {one} -> {other}\n"),
        });
    }
    text.push_str(&changed_beside(&known(&before, &old_results), &known(&after, &new_results)));
    printer.data(&(text + &lines));
    Ok(ExitStatus::Done)
}

/// What is known of a measurement beside its kernel, QEMU, plan and VMs: what it recorded, on what it ran, and what was asked of it
/// that its document leaves out.
fn known(entry: &Entry, results: &Results) -> BTreeMap<String, String> {
    let devices: Vec<&str> = results.tenants.iter().map(|tenant| tenant.slice.device.as_str()).collect();
    let request = entry.request.as_deref().and_then(|request| Experiment::parse(&entry.experiment, request).ok());
    let asked = match request {
        Some(Experiment::Together(request)) => Some(("over", over(&request.over))),
        Some(Experiment::Modes(request)) => {
            Some(("programs", if request.single { "one over all nodes" } else { "one on each node" }.to_owned()))
        }
        _ => None,
    };
    let more = asked.into_iter().chain([("devices", devices.join(", "))]).map(|(name, value)| (name.to_owned(), value));
    results.provenance.clone().into_iter().chain(more).collect()
}

/// What several VMs work on.
fn over(over: &Over) -> String {
    match over {
        Over::Scratch { .. } => "scratch devices".to_owned(),
        Over::Drives { .. } => "drives of their own".to_owned(),
        Over::Port { way, .. } => format!("a port, by {}", way.id()),
    }
}

/// What else is known of both measurements and is not the same: the image of the loads, a kit, a program's version or command. The
/// order of the runs is another with every seed.
fn changed_beside(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> String {
    let said = ["host kernel", "hypervisor", "seed"];
    let differing = old.iter().filter_map(|(name, one)| Some((name, one, new.get(name)?)));
    let differing = differing.filter(|(name, one, other)| one != other && !said.contains(&name.as_str()));
    differing.map(|(name, one, other)| format!("{name}: {one} -> {other}\n")).collect()
}

fn workloads(all: &[Comparison]) -> Vec<&Workload> {
    all.iter().map(|one| &one.workload).collect()
}

/// In which fields the two most similar loads of one kind differ, behind a colon; empty where no kind is in both.
fn differences(old: &[&Workload], new: &[&Workload]) -> String {
    let fields = |load: &Workload| match serde_json::to_value(load.but_for_its_start()) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let of = |one: &Workload, other: &Workload| -> Option<Vec<String>> {
        let (one, other) = (fields(one), fields(other));
        let word = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
        let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        let differing = names.into_iter().filter(|name| one.get(*name) != other.get(*name));
        let words = differing.map(|name| format!("{name} {} and {}", word(one.get(name)), word(other.get(name))));
        (one.get("kind") == other.get("kind")).then(|| words.collect())
    };
    let pairs = old.iter().flat_map(|one| new.iter().filter_map(move |other| of(one, other)));
    let least = pairs.filter(|words| !words.is_empty()).min_by_key(Vec::len);
    least.map_or_else(String::new, |words| format!(": they differ in {}", words.join(", ")))
}

fn changed(one: &Comparison, other: &Comparison) -> String {
    let figure = |comparison: &Comparison| match &comparison.estimate {
        Estimate::Paired { ratio, .. } => (format!("{ratio}, n = {}", ratio.n), Some(ratio.interval().clone())),
        Estimate::SingleShot { ratio } => (format!("{}, single shot", ShownRatio::new(*ratio, None)), None),
    };
    let ((old, before), (new, after)) = (figure(one), figure(other));
    let verdict = match (&before, &after) {
        (Some(before), Some(after)) if after.low > before.high => "higher",
        (Some(before), Some(after)) if after.high < before.low => "lower",
        (Some(_), Some(_)) => "no difference shown: the intervals overlap",
        _ => "single shots: nothing is claimed",
    };
    let pair = format!("{} / {}", one.subject.title, one.reference.title);
    format!("{:44} {pair:28} {old} -> {new}: {verdict}\n", one.workload.label())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(directories: u32, prepare: u32) -> Workload {
        let text = format!(
            r#"{{"kind":"web","workers":2,"connections":16,"directories":{directories},"prepare":{prepare},"ramp":3,"seconds":4}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn another_image_of_the_loads_is_told_and_another_seed_is_not() {
        let of = |image: &str, seed: &str| {
            let all = [("loads image", image), ("seed", seed), ("libvirt", "11.3.0"), ("host kernel", seed)];
            all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        };
        assert_eq!(changed_beside(&of("sha256:a", "1"), &of("sha256:b", "2")), "loads image: sha256:a -> sha256:b\n");
        // What one of them does not say is no difference.
        assert_eq!(changed_beside(&of("sha256:a", "1"), &BTreeMap::new()), "");
    }

    #[test]
    fn two_loads_of_a_kind_say_in_what_they_differ_and_a_start_is_no_difference() {
        let memory: Workload =
            serde_json::from_str(r#"{"kind":"memory-work","threads":2,"each":1048576,"seconds":5}"#).unwrap();
        let (two, nine) = (web(2, 20), web(9, 75));
        assert_eq!(differences(&[&memory, &two], &[&nine]), ": they differ in directories 2 and 9");
        assert_eq!(differences(&[&two], &[&web(2, 75)]), "");
        assert_eq!(differences(&[&memory], &[&nine]), "", "two kinds have no fields to compare");
        assert_eq!(two.but_for_its_start(), web(2, 75).but_for_its_start());
    }
}
