//! `nearmetal plan --fleet`: read the file, read the hosts, plan, say.

use std::path::{Path, PathBuf};

use nearmetal_fleet::file::{AssembleErrors, FileErrors, FleetFile, HostEntry, HostReach, KnownHost, assemble};
use nearmetal_fleet::{Fleet, FleetError, FleetPlan, Step, check};
use nearmetal_host::files;
use nearmetal_report::Style;
use nearmetal_report::fleet::{Details, FleetReport, HostPicture, what_if_text};

use super::compose::{defined_elsewhere, fleet_plan_file};
use super::directory::{self, Pages};
use super::hosts::{self, ReadHost, Wanted};
use super::options::FleetArgs;
use super::targets::reach_of;
use super::what_if;
use crate::exit_status::ExitStatus;
use crate::next_step::{restarted, to_apply};
use crate::printer::Printer;
use crate::source::SourceArgs;
use crate::style::Format;
use crate::style::style;

/// Steps shown where not all are asked for.
const STEPS_SHOWN: usize = 20;

/// Columns of the report as a file.
const FILE_WIDTH: usize = 120;

/// Plans a fleet.
///
/// # Errors
/// The file is wrong, a host cannot be read, or the fleet makes no sense; in words.
pub(crate) fn run(
    path: &Path,
    args: &FleetArgs,
    output: Option<&Path>,
    format: Format,
    printer: &mut Printer,
) -> anyhow::Result<ExitStatus> {
    let title = path.file_stem().map_or_else(|| "fleet".to_owned(), |name| name.to_string_lossy().into_owned());
    let mut file = FleetFile::parse(&path.display().to_string(), &files::read_to_string(path)?)?;
    let wanted: Vec<Wanted> = file.hosts.iter().map(|host| wanted(host, path)).collect();
    let read = hosts::read(&wanted, printer)?;
    let notes = stay_where_defined(&mut file, &read);
    let known: Vec<KnownHost<'_>> =
        read.iter().map(|host| KnownHost { name: &host.name, host: &host.host, ledger: &host.ledger }).collect();
    let assembled = assemble(&file, &known)?;
    let mut plan = checked_plan(&assembled.fleet, args)?;
    plan.assumptions.splice(0..0, assembled.assumed.iter().cloned().chain(notes));
    for host in &read {
        plan.assumptions.extend(host.unknown.iter().map(|unknown| format!("{}: {unknown}", host.name)));
    }
    let pictures: Vec<HostPicture<'_>> =
        read.iter().map(|host| HostPicture::new(&host.name, &host.host, &host.ledger)).collect();
    let report = FleetReport::new(&assembled.fleet, &plan, &pictures);
    let details = Details { all: args.details, ..Details::new(style(printer)) };
    if !args.what_if.is_empty() {
        let changed = what_if::changed(&assembled.fleet, &args.what_if)?;
        let other = checked_plan(&changed, args)?;
        match format {
            Format::Json => printer.data(&serde_json::to_string_pretty(&other)?),
            Format::Text => {
                let other = FleetReport::new(&changed, &other, &pictures);
                printer.data(&what_if_text(&report, &other, &details));
            }
        }
        return Ok(status(&other));
    }
    let beside = path.parent().unwrap_or(Path::new(""));
    let document = fleet_plan_file(&file, &assembled.fleet, &read, &plan, beside)?;
    match format {
        Format::Json => printer.data(&document.to_json()),
        Format::Text => printer.data(&(report.text(&details) + &way(&document.steps, args.details))),
    }
    for [vm, from, to] in defined_elsewhere(&file, &read, &plan) {
        printer.important(&format!(
            "`{vm}` is defined on {from} and belongs on {to}. nearmetal does not migrate guests: move it yourself \
             (virsh migrate --live --persistent --undefinesource, with storage both hosts see), then plan again. The \
             plan file leaves it out"
        ));
    }
    let restarted: Vec<&str> = document
        .hosts
        .iter()
        .flat_map(|part| {
            let inputs = read.iter().find(|host| host.name == part.name).and_then(|host| host.domains.as_deref().ok());
            restarted(&part.plan.domains, inputs.unwrap_or_default())
        })
        .collect();
    if let Some(path) = output {
        document.save(path)?;
        printer.say(&to_apply(path, &restarted));
    }
    if let Some(path) = &args.directory {
        // A file has no colours, and is read on any screen.
        let plain = Details { all: true, ..Details::new(Style { width: FILE_WIDTH, colour: false, ascii: false }) };
        let pages = Pages {
            text: report.text(&plain) + &way(&document.steps, true),
            html: report.html(&title, &document.created)?,
            hosts: report.svg(),
            overview: report.overview_svg(),
        };
        let written = directory::write(path, &document, &pages)?;
        printer.say(&format!("wrote {written} files to {0}: start with {0}/report.html", path.display()));
        printer.say(&to_apply(&path.join("plan.json"), &restarted));
    }
    Ok(status(&plan))
}

/// Plans a fleet, and asks for a second opinion that shares no code with the search: a plan it objects to is never shown
/// as one.
fn checked_plan(fleet: &Fleet, args: &FleetArgs) -> anyhow::Result<FleetPlan> {
    let plan = nearmetal_fleet::plan(fleet, &args.options())?;
    let breaches = check(fleet, &plan);
    if let Some(breach) = breaches.first() {
        anyhow::bail!(
            "the plan breaks a rule ({breach}). This is a bug in nearmetal: please report it with the fleet file"
        );
    }
    Ok(plan)
}

/// The steps of VMs that run, as the report's last section; nothing where none moves.
fn way(steps: &[Step], all: bool) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let shown = if all { steps.len() } else { steps.len().min(STEPS_SHOWN) };
    let mut text = "\nHow to get there: take the steps in this order, and no step breaks a rule\n".to_owned();
    for (number, step) in (1..).zip(&steps[..shown]) {
        text.push_str(&format!("  {number}. {step}\n"));
    }
    if shown < steps.len() {
        text.push_str(&format!("  and {} more: --details, or --format json\n", steps.len() - shown));
    }
    text
}

fn status(plan: &FleetPlan) -> ExitStatus {
    if plan.refusals.is_empty() { ExitStatus::Done } else { ExitStatus::Findings }
}

/// Paths in a fleet file count from the file.
fn wanted(entry: &HostEntry, file: &Path) -> Wanted {
    let beside = |path: &PathBuf| file.parent().unwrap_or(Path::new("")).join(path);
    let source = match &entry.reach {
        HostReach::Local | HostReach::Ssh { .. } => SourceArgs { capture: None, host: None },
        HostReach::Libvirt(uri) => SourceArgs { capture: None, host: Some(uri.clone()) },
        HostReach::Capture(path) => SourceArgs { capture: Some(beside(path)), host: None },
    };
    Wanted { name: entry.name.clone(), reach: reach_of(&entry.reach), source }
}

/// A VM that is defined on a host has its disks there: it stays, unless the file says where it goes.
fn stay_where_defined(file: &mut FleetFile, hosts: &[ReadHost]) -> Vec<String> {
    let mut notes = Vec::new();
    for host in hosts {
        let Ok(domains) = &host.domains else { continue };
        for domain in domains {
            let entry = file.vms.iter_mut().find(|entry| entry.vm.name == domain.name);
            let Some(entry) = entry.filter(|entry| entry.on.is_none() && entry.vm.hosts.names.is_empty()) else {
                continue;
            };
            entry.on = Some(host.name.clone());
            entry.vm.hosts.names = vec![host.name.clone()];
            notes.push(format!("`{}` is defined on {}, and stays there: its disks are", domain.name, host.name));
        }
    }
    for host in hosts {
        if let Err(problem) = &host.domains {
            notes.push(format!("{}: cannot tell what is defined there ({problem})", host.name));
        }
    }
    notes
}

/// The error a fleet file's fault becomes, with its lines.
pub(crate) fn refused(error: &anyhow::Error, printer: &mut Printer) -> ExitStatus {
    printer.important(&format!("error: {error:#}"));
    let wrong =
        error.chain().any(|cause| cause.is::<FileErrors>() || cause.is::<AssembleErrors>() || cause.is::<FleetError>());
    if wrong { ExitStatus::WrongUse } else { ExitStatus::Refused }
}
