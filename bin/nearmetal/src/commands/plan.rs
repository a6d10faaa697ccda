//! `nearmetal plan`.

use std::path::PathBuf;

use nearmetal_change::{ChangeError, DomainInput, PlanFile, compose};
use nearmetal_domain::{DomainFacts, DomainXml, diff, render_diff};
use nearmetal_host::{Host, HostFs, files};
use nearmetal_hypervisor::{Definition, Hypervisor, Libvirt};
use nearmetal_place::{GuestRequest, Measured, Occupied, Planned, Policy, UnknownClass, WorkloadClass, render};

use crate::exit_status::ExitStatus;
use crate::fleet::{self, options::FleetArgs};
use crate::guest_request::{Paths, guest_request};
use crate::job::mask;
use crate::measured::{Guest, STORE, measured};
use crate::printer::Printer;
use crate::refusal::refuse;
use crate::state::{StateArgs, warn_of_unfinished};
use crate::style::Format;

/// Where guests belong on this machine, and why
///
/// Reads the machine and libvirt's definitions, decides, and shows the reasons and the difference in each definition.
/// Changes nothing. Exit code 1 if a guest cannot be placed.
///
/// With --fleet it plans many VMs over many hosts together: who goes where, how good that is and how far it can be from
/// the best, and for each VM without a place the one smallest change that would give it one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Domains of libvirt
    #[arg(value_name = "DOMAIN", required_unless_present_any = ["domain_xml", "fleet"])]
    domains: Vec<String>,
    /// Write the plan here, for `nearmetal apply`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What is printed; json is the plan itself, with the definitions as they are
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// What the guests are for; decides over what their definitions say
    #[arg(long, value_name = "CLASS")]
    class: Option<WorkloadClass>,
    /// Do not back guest memory with hugepage pools
    #[arg(long)]
    no_hugepages: bool,
    /// PUs for each guest's vhost workers alone, where its node has some left; takes libvirt's qemu hook
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    vhost_pus: u32,
    /// Leave interrupts of functions handed through where the kernel puts them: no libvirt hook is needed for them then
    #[arg(long)]
    leave_interrupts: bool,
    /// Plan for a captured machine: a file of `nearmetal capture`, a directory with `sys` and `proc` in it, hwloc's
    /// captures (tar, also gz, bz2, xz, zst) or XML
    #[arg(long, value_name = "PATH", requires = "domain_xml")]
    capture: Option<PathBuf>,
    /// Take a definition from this file instead of from libvirt; may be given several times
    #[arg(long, value_name = "FILE")]
    domain_xml: Vec<PathBuf>,
    /// Decide by rules alone, without what the races of `nearmetal bench` found on this machine for disks and for networks
    #[arg(long)]
    no_measured: bool,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    state: StateArgs,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal plan web1 -o plan.json                       where web1 belongs on this machine
  nearmetal plan --capture web7.tar.gz --domain-xml a.xml    where a would go on a machine that is not here
  nearmetal fleet init -o fleet.toml                     a fleet file of what exists here
  nearmetal plan --fleet fleet.toml                      all its VMs over all its hosts, with the reasons
  nearmetal plan --fleet fleet.toml --directory out      the same as a page with pictures, definitions, commands
  nearmetal plan --fleet fleet.toml --what-if add-vm=db  would one more like db find a place?
  nearmetal plan --fleet fleet.toml -o plan.json && nearmetal apply plan.json";

/// Runs the command.
pub(crate) fn plan(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if let Some(path) = &args.fleet.fleet {
        let planned = fleet::plan::run(path, &args.fleet, args.output.as_deref(), args.format, printer);
        return Ok(planned.unwrap_or_else(|error| fleet::plan::refused(&error, printer)));
    }
    match run(&args, printer) {
        Ok(status) => Ok(status),
        Err(error) => Ok(refuse(printer, &error)),
    }
}

fn run(args: &Args, printer: &mut Printer) -> Result<ExitStatus, ChangeError> {
    let tree = match &args.capture {
        None => HostFs::live(),
        Some(path) => nearmetal_capture::open(path).map_err(|error| ChangeError::Kernel(error.to_string()))?,
    };
    if tree.is_live() {
        warn_of_unfinished(&args.state.journal(), printer);
    }
    let host = Host::read(&tree);
    let inputs = inputs(args)?;
    let mut requests = inputs.iter().map(|input| request(args, &host, input)).collect::<Result<Vec<_>, _>>()?;
    let uuids: Vec<&str> = requests.iter().map(|request| request.uuid.as_str()).collect();
    let occupied = Occupied::from_guests(&host, &uuids);
    let policy = Policy {
        hugepages: !args.no_hugepages,
        vhost_pus: args.vhost_pus,
        place_interrupts: !args.leave_interrupts,
        ..Policy::default()
    };
    let measured = match tree.is_live() && !args.no_measured {
        true => measured_here(args, &tree, &host, &inputs, &requests, printer)?,
        false => Measured::default(),
    };
    measured.expect_in(&mut requests);
    let mut planned = nearmetal_place::plan(&host, &occupied, &requests, &policy);
    nearmetal_place::use_measured(&host, &mut planned.plan, &measured);
    let file = compose(&host, &planned.plan, &inputs)?;
    if let Some(path) = args.output.as_ref().filter(|_| !file.domains.is_empty()) {
        file.save(path)?;
    }
    match args.format {
        Format::Json => printer.data(&file.to_json()),
        Format::Text => printer.data(&text(&planned, &file)),
    }
    match &args.output {
        Some(path) if file.domains.is_empty() => {
            let why = if planned.plan.blocked.is_empty() { "nothing to do" } else { "no guest could be placed" };
            printer.important(&format!("`{}` was not written: {why}", path.display()))
        }
        Some(path) => printer.say(&format!("to put it in force: nearmetal apply {}", path.display())),
        None => {}
    }
    Ok(if planned.plan.blocked.is_empty() { ExitStatus::Done } else { ExitStatus::Findings })
}

/// What was measured on this machine for these guests.
fn measured_here(
    args: &Args,
    tree: &HostFs,
    host: &Host,
    inputs: &[DomainInput],
    requests: &[GuestRequest],
    printer: &mut Printer,
) -> Result<Measured, ChangeError> {
    let guests = inputs.iter().zip(requests).map(|(input, request)| {
        // The stored definition is what is planned; the one in force only tells what libvirt's networks stand for.
        let live = input.live_xml.as_deref().and_then(|xml| facts(xml, &input.name).ok());
        Ok(Guest { request, stored: facts(&input.inactive_xml, &input.name)?, live })
    });
    let guests = guests.collect::<Result<Vec<_>, ChangeError>>()?;
    let store = args.state.journal().state_directory().join(STORE);
    Ok(measured(&store, tree, host, &guests, printer))
}

/// The reasons, and the difference of each definition.
fn text(planned: &Planned, file: &PlanFile) -> String {
    let mut text = render(planned);
    for domain in &file.domains {
        let lines = diff(&mask(&domain.xml_before), &mask(&domain.xml_after));
        if domain.is_new() {
            text.push_str(&format!("\n{}: does not exist yet, and is made\n", domain.name));
        }
        if lines.is_empty() {
            text.push_str(&format!("\n{}: its definition is already as planned\n", domain.name));
        } else {
            text.push('\n');
            text.push_str(&render_diff(
                &lines,
                &format!("{} as found", domain.name),
                &format!("{} as planned", domain.name),
            ));
        }
        for (head, parts) in [("when the guest starts", &domain.needs_restart), ("while it runs", &domain.live_now)] {
            if !parts.is_empty() {
                text.push_str(&format!("\n{}: {head}\n", domain.name));
            }
            let width = parts.iter().map(|part| part.what.chars().count()).max().unwrap_or(0);
            for part in parts {
                text.push_str(&format!("  {:width$}  {}\n", part.what, part.change));
            }
        }
    }
    text
}

/// The definitions, from libvirt or from files.
fn inputs(args: &Args) -> Result<Vec<DomainInput>, ChangeError> {
    let mut inputs = Vec::new();
    for path in &args.domain_xml {
        let inactive_xml = files::read_to_string(path)?;
        let facts = facts(&inactive_xml, &path.display().to_string())?;
        inputs.push(DomainInput { name: facts.name, inactive_xml, live_xml: None });
    }
    if args.domains.is_empty() {
        return Ok(inputs);
    }
    let mut libvirt = Libvirt::open(None)?;
    for name in &args.domains {
        let summary = libvirt.domain(name)?;
        let runs = !summary.state.is_off();
        inputs.push(DomainInput {
            name: summary.name,
            inactive_xml: libvirt.domain_xml(name, Definition::Inactive)?,
            live_xml: if runs { Some(libvirt.domain_xml(name, Definition::Live)?) } else { None },
        });
    }
    Ok(inputs)
}

pub(crate) fn facts(xml: &str, name: &str) -> Result<DomainFacts, ChangeError> {
    DomainXml::parse(xml)
        .and_then(|xml| xml.facts())
        .map_err(|error| ChangeError::Compose { domain: name.to_owned(), problem: error.to_string() })
}

/// What the planner has to know of a domain.
fn request(args: &Args, host: &Host, input: &DomainInput) -> Result<GuestRequest, ChangeError> {
    let facts = facts(&input.inactive_xml, &input.name)?;
    let class = match (&args.class, &facts.class) {
        (Some(class), _) => *class,
        (None, Some(text)) => {
            let problem =
                |error: UnknownClass| ChangeError::Compose { domain: input.name.clone(), problem: error.to_string() };
            text.parse().map_err(problem)?
        }
        (None, None) => WorkloadClass::default(),
    };
    Ok(guest_request(facts, class, &Paths { host, here: true }))
}
