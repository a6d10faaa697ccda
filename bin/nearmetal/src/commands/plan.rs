//! `nearmetal plan`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nearmetal_change::{Beside, ChangeError, DomainInput, Left, PlanFile, compose, follow_rules};
use nearmetal_domain::{DomainFacts, DomainXml, diff, render_diff};
use nearmetal_host::text::what_root_would_add;
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{Definition, Hypervisor, Libvirt, Versions};
use nearmetal_place::{
    GuestRequest, Measured, Occupied, Pins, Plan, Planned, Policy, Siblings, UnknownClass, WorkloadClass, plan_running,
    render,
};
use nearmetal_rules::Domain;

use crate::doctor::Images;
use crate::exit_status::ExitStatus;
use crate::fleet::{self, options::FleetArgs};
use crate::guest_profile::Denied;
use crate::guest_request::{Paths, guest_request};
use crate::job::mask;
use crate::live;
use crate::measured::{Guest, STORE, measured};
use crate::next_step::{restarted, to_apply};
use crate::printer::Printer;
use crate::refusal::refuse;
use crate::state::{StateArgs, warn_of_unfinished};
use crate::style::Format;

/// Decide where guests belong on this machine, and say why
///
/// Reads the machine and libvirt's definitions, and shows the placement, its reasons and the change to each definition. The
/// plan also sets what the doctor's rules ask of the guest's class. It lists what it does not set, with the reason. It
/// changes nothing. The exit code is 1 if a guest does not fit.
///
/// With --fleet it plans many VMs over many hosts together. It shows which VM goes where, how good the plan is, and the
/// most it can differ from the best one. For each VM that does not fit, it names the smallest change that would make room.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// libvirt domains to plan
    #[arg(value_name = "DOMAIN", required_unless_present_any = ["domain_xml", "fleet"])]
    domains: Vec<String>,
    /// Write the plan to this file, for `nearmetal apply`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format; json is the plan itself, with the definitions unmasked
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Plan for this class, whatever the definitions say
    #[arg(long, value_name = "CLASS")]
    class: Option<WorkloadClass>,
    /// Do not back guest memory with hugepage pools
    #[arg(long)]
    no_hugepages: bool,
    /// Reserve this many PUs for each guest's vhost workers, if its node has PUs left; installs libvirt's qemu hook
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    vhost_pus: u32,
    /// Leave the interrupts of passed-through functions where the kernel puts them; this needs no libvirt hook
    #[arg(long)]
    leave_interrupts: bool,
    /// If a VM lies on several nodes, let it see these nodes as cells of its own
    #[arg(long, conflicts_with = "fleet")]
    guest_cells: bool,
    /// Give each vCPU a core of its own where cores have several PUs (SMT), and leave the others of these cores idle
    #[arg(long, conflicts_with = "fleet")]
    spare_siblings: bool,
    /// Plan for a captured machine: a file from `nearmetal capture`, a directory that holds `sys` and `proc`, an hwloc
    /// capture (tar, also gz, bz2, xz, zst) or hwloc XML
    #[arg(long, value_name = "PATH", requires = "domain_xml")]
    capture: Option<PathBuf>,
    /// Read a definition from this file instead of asking libvirt; may be repeated
    #[arg(long, value_name = "FILE")]
    domain_xml: Vec<PathBuf>,
    /// Ignore what the races of `nearmetal bench` measured on this machine for disks and networks
    #[arg(long)]
    no_measured: bool,
    #[command(flatten)]
    state: StateArgs,
    // Last, since its heading would hold for all options behind it.
    #[command(flatten)]
    fleet: FleetArgs,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal plan web1 -o plan.json                       where web1 belongs on this machine
  nearmetal plan --capture web7.tar.gz --domain-xml a.xml    where `a` would go on a captured machine
  nearmetal fleet init -o fleet.toml                     write a fleet file of the domains here
  nearmetal plan --fleet fleet.toml                      plan all its VMs over all its hosts
  nearmetal plan --fleet fleet.toml --directory out      also write a page with pictures, definitions, commands
  nearmetal plan --fleet fleet.toml --what-if add-vm=db  is there room for one more VM like db?
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
    let Found { inputs, neighbours, versions, denied } = inputs(&args.domains, &args.domain_xml)?;
    let mut requests = inputs.iter().map(|input| request(args.class, &host, input)).collect::<Result<Vec<_>, _>>()?;
    let (host, beside) = for_the_rules(args.class, tree.is_live(), host, &inputs, versions)?;
    let policy = Policy {
        hugepages: !args.no_hugepages,
        vhost_pus: args.vhost_pus,
        place_interrupts: !args.leave_interrupts,
        guest_cells: args.guest_cells,
        siblings: if args.spare_siblings { Siblings::Spare } else { Siblings::Use },
        ..Policy::default()
    };
    let mut measured = match tree.is_live() && !args.no_measured {
        true => measured_here(args, &tree, &host, &inputs, &requests, printer)?,
        false => Measured::default(),
    };
    if args.guest_cells || args.spare_siblings {
        // Best floating, by a tune; what is asked for here pins it.
        measured.guests.retain(|own| own.choices.pins != Pins::Float);
    }
    measured.expect_in(&mut requests);
    let denied = denied.filter(|_| tree.is_live());
    let refuse = |plan: &mut Plan| denied.iter().for_each(|denied| denied.block(plan));
    let mut planned = plan_running(&host, &requests, &policy, &measured.guests, refuse);
    nearmetal_place::use_measured(&host, &mut planned.plan, &measured);
    let mut file = compose(&host, &planned.plan, &inputs)?;
    let unread = what_root_would_add(&host).filter(|_| tree.is_live());
    // To the rules none of the planned guests runs.
    let placed: Vec<&str> = planned.plan.placements.iter().map(|placement| placement.uuid.as_str()).collect();
    let mut told = host;
    Occupied::from_guests(&told, &placed).give_back(&mut told);
    follow_rules(&mut file, &told, &beside, &neighbours)?;
    // With the reasons of the rules that it follows.
    planned.plan = file.plan.clone();
    if let Some(path) = args.output.as_ref().filter(|_| !file.domains.is_empty()) {
        file.save(path)?;
    }
    match args.format {
        Format::Json => printer.data(&file.to_json()),
        Format::Text => printer.data(&text(&planned, &file)),
    }
    match &args.output {
        Some(path) if file.domains.is_empty() => {
            let why = if planned.plan.blocked.is_empty() { "nothing to do" } else { "no guest fits" };
            printer.important(&format!("did not write `{}`: {why}", path.display()))
        }
        Some(path) => printer.say(&to_apply(path, &restarted(&file.domains, &inputs))),
        None if !file.domains.is_empty() && args.format == Format::Text => {
            printer.say("to apply it, write it to a file: the same command with -o plan.json");
        }
        None => {}
    }
    // Memory that nobody may look at is not counted as coming free.
    if let Some(sentence) = unread {
        printer.say(&sentence);
    }
    Ok(if planned.plan.blocked.is_empty() { ExitStatus::Done } else { ExitStatus::Findings })
}

/// The host and the domains with what rules look at beside files of /sys, /proc and definitions: as the doctor has it.
pub(crate) fn for_the_rules(
    class: Option<WorkloadClass>,
    is_live: bool,
    mut host: Host,
    inputs: &[DomainInput],
    versions: Option<Versions>,
) -> Result<(Host, BTreeMap<String, Beside>), ChangeError> {
    let mut domains = Vec::new();
    for input in inputs {
        domains.extend(Domain::new(Some(facts(&input.inactive_xml, &input.name)?), None, class));
    }
    if let Some(versions) = versions {
        live::tell_versions(&mut host, versions);
    }
    if is_live {
        Images::default().look(&mut domains);
        live::complete(&mut host, &domains);
    }
    let beside = domains.into_iter().map(|domain| (domain.name, Beside { class, images: domain.images }));
    Ok((host, beside.collect()))
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
            text.push_str(&format!("\n{}: does not exist yet and will be created\n", domain.name));
        }
        if lines.is_empty() {
            text.push_str(&format!("\n{}: the definition is already as planned\n", domain.name));
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
        if let (Some(class), false) = (&domain.class, domain.left.is_empty()) {
            text.push_str(&format!("\n{}: rules the plan does not meet (class {class})\n", domain.name));
            text.push_str(&left(&domain.left));
        }
    }
    if !file.left.is_empty() {
        text.push_str("\nhost: rules the plan does not meet, and these guests would gain from\n");
        text.push_str(&left(&file.left));
    }
    text
}

/// What rules ask for and the plan leaves, each with the reason.
fn left(all: &[Left]) -> String {
    let one = |left: &Left| {
        let Left { rule, what, found, wanted, why } = left;
        format!("  {rule}  {what}: {found} (wanted: {wanted})\n    because {why}\n")
    };
    all.iter().map(one).collect()
}

/// What there is.
pub(crate) struct Found {
    /// Domains to be planned.
    pub(crate) inputs: Vec<DomainInput>,
    /// Domains of the same host that run and are not to be planned.
    pub(crate) neighbours: Vec<Domain>,
    /// Of libvirt and QEMU, where they were asked.
    pub(crate) versions: Option<Versions>,
    /// What AppArmor keeps guests in huge pages from.
    pub(crate) denied: Option<Denied>,
}

/// The definitions, from libvirt or from files.
pub(crate) fn inputs(domains: &[String], files: &[PathBuf]) -> Result<Found, ChangeError> {
    let mut inputs = Vec::new();
    for path in files {
        let inactive_xml = nearmetal_host::files::read_to_string(path)?;
        let facts = facts(&inactive_xml, &path.display().to_string())?;
        inputs.push(DomainInput { name: facts.name, inactive_xml, live_xml: None });
    }
    if domains.is_empty() {
        return Ok(Found { inputs, neighbours: Vec::new(), versions: None, denied: None });
    }
    let mut libvirt = Libvirt::open(None)?;
    let versions = libvirt.versions()?;
    let denied = Denied::here(&HostFs::live(), &mut libvirt);
    for name in domains {
        let summary = libvirt.domain(name)?;
        let runs = !summary.state.is_off();
        inputs.push(DomainInput {
            name: summary.name,
            inactive_xml: libvirt.domain_xml(name, Definition::Inactive)?,
            live_xml: if runs { Some(libvirt.domain_xml(name, Definition::Live)?) } else { None },
        });
    }
    let others = libvirt.domains()?.into_iter();
    let others = others.filter(|other| !other.state.is_off() && inputs.iter().all(|input| input.name != other.name));
    let names: Vec<String> = others.map(|other| other.name).collect();
    // One that stops meanwhile, or that cannot be read, is no neighbour that rules could look at.
    let neighbours = names.iter().filter_map(|name| {
        let xml = libvirt.domain_xml(name, Definition::Live).ok()?;
        Domain::new(None, Some(facts(&xml, name).ok()?), None)
    });
    let neighbours = neighbours.collect();
    Ok(Found { inputs, neighbours, versions: Some(versions), denied })
}

pub(crate) fn facts(xml: &str, name: &str) -> Result<DomainFacts, ChangeError> {
    DomainXml::parse(xml)
        .and_then(|xml| xml.facts())
        .map_err(|error| ChangeError::Compose { domain: name.to_owned(), problem: error.to_string() })
}

/// What the planner has to know of a domain.
pub(crate) fn request(
    class: Option<WorkloadClass>,
    host: &Host,
    input: &DomainInput,
) -> Result<GuestRequest, ChangeError> {
    let facts = facts(&input.inactive_xml, &input.name)?;
    let class = match (class, &facts.class) {
        (Some(class), _) => class,
        (None, Some(text)) => {
            let problem =
                |error: UnknownClass| ChangeError::Compose { domain: input.name.clone(), problem: error.to_string() };
            text.parse().map_err(problem)?
        }
        (None, None) => WorkloadClass::default(),
    };
    Ok(guest_request(facts, class, &Paths { host, here: true }))
}
