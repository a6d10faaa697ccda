//! `nearmetal offer`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nearmetal_host::assignable::examine;
use nearmetal_host::{Host, HostFs, files, ledger};
use nearmetal_image::Store;
use nearmetal_run::RunError;
use nearmetal_run::flavour::{FILE, Flavours};
use nearmetal_run::given::Given;
use nearmetal_run::needs::on_this_host;
use nearmetal_run::offer::{Offer, Sources};
use nearmetal_run::promised::with_unseen;
use nearmetal_run::reservation::{DIRECTORY, Desk};

use super::run::with_users;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Bytes of a flavours file that are read: the parser refuses more with its own words.
const MOST: usize = 2 << 20;

/// Tell a batch system what this host has for runs: flavours that fit, nodes, PUs, images and functions
///
/// Changes nothing and runs without root. A flavour counts as fitting if at least one guest of it does beside no run, within
/// what this process was given of the machine, and if the host has KVM, its image, its bridge or a virtual function of its port,
/// and the files that it boots. What cannot be told is left out, and said on stderr; the exit code is 0 then too.
#[derive(Debug, clap::Args)]
#[command(after_help = ENGINES)]
pub(crate) struct Args {
    /// Flavours file (docs/reference/flavours.md)
    #[arg(long, value_name = "FILE", default_value = FILE)]
    flavours: PathBuf,
    /// Directory of images
    #[arg(long, value_name = "DIR", default_value = nearmetal_image::DIRECTORY)]
    directory: PathBuf,
    /// Directory of the appliance (vmlinuz, initramfs.cpio.gz), for flavours that boot it
    #[arg(long, value_name = "DIR", default_value = "/usr/share/nearmetal/appliance")]
    appliance: PathBuf,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Directory of reservations, for tests
    #[arg(long, hide = true, value_name = "DIR", default_value = DIRECTORY)]
    reservations: PathBuf,
}

/// How an offer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// One document for programs (docs/reference/runs.md)
    Json,
    /// Attributes of an HTCondor machine, for STARTD_CRON
    Classad,
    /// `Features=` of a Slurm node
    Slurm,
}

const ENGINES: &str = "\
Configuration of HTCondor, Slurm and Kubernetes around it is in /usr/share/doc/nearmetal/examples, and explained in
docs/guides/batch-systems.md.";

/// Runs the command.
pub(crate) fn offer(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let fs = HostFs::live();
    let host = Host::read(&fs);
    let ledger = ledger::read(&fs, &host);
    let mut unknown = Vec::new();
    let mut told = |what: &str, error: &dyn std::fmt::Display| unknown.push(format!("{what}: {error}"));
    let given = Given::read(&fs).inspect_err(|error| told("what this process was given", error)).ok();
    let runs = Desk::at(&args.reservations).living().inspect_err(|error| told("what runs have", error)).ok();
    let flavours = flavours(args).inspect_err(|error| told("flavours", error)).ok();
    let store = Store::at(&args.directory);
    let images = store.list().inspect_err(|error| told("images", error)).ok();
    let lacks = flavours.iter().flat_map(Flavours::all).filter_map(|flavour| {
        let error = on_this_host(&fs, flavour, Path::new("/dev/kvm"), &args.appliance).err()?;
        Some((flavour.name.clone(), words(&error)))
    });
    let lacks: BTreeMap<String, String> = lacks.collect();
    if !ledger.unknown.is_empty() {
        told("what guests have", &format!("this user cannot see {}", ledger.unknown.join(", ")));
    }
    let host = with_unseen(&fs, host, runs.as_deref().unwrap_or_default());
    let sources = Sources {
        host: &host,
        given: given.as_ref(),
        runs: runs.as_deref(),
        flavours: flavours.as_ref(),
        store: &store,
        images: images.as_deref(),
        lacks: &lacks,
        functions: &with_users(&fs, examine(&host, &ledger)),
    };
    let offer = Offer::of(&sources, unknown);
    match args.format {
        Format::Json => printer.data(&serde_json::to_string_pretty(&offer)?),
        Format::Classad => printer.data(&offer.classad()),
        Format::Slurm => printer.data(&offer.slurm()),
        Format::Text => printer.data(&text(&offer)),
    }
    for sentence in &offer.unknown {
        printer.important(&format!("offer: unknown: {sentence}"));
    }
    Ok(ExitStatus::Done)
}

fn flavours(args: &Args) -> Result<Flavours, String> {
    let text =
        files::read_to_string_up_to(&args.flavours, MOST).map_err(|error| format!("{error}: {}", error.source))?;
    Flavours::parse(&args.flavours.display().to_string(), &text).map_err(|error| error.to_string())
}

/// An error with its cause, in one sentence.
fn words(error: &RunError) -> String {
    match error {
        RunError::File(error) => format!("{error}: {}", error.source),
        error => error.to_string(),
    }
}

/// A line for each thing, for people.
fn text(offer: &Offer) -> String {
    let unknown = || "?".to_owned();
    let set = |cpus: &Option<nearmetal_units::CpuSet>| cpus.as_ref().map_or_else(unknown, ToString::to_string);
    let mut lines = vec![format!("PUs {}, free {}", set(&offer.cpus), set(&offer.free_cpus))];
    for node in &offer.nodes {
        let bytes = |bytes: Option<nearmetal_units::Bytes>| bytes.map_or_else(unknown, |bytes| bytes.to_string());
        let (free, all) = (bytes(node.memory_free), bytes(node.memory));
        lines.push(format!("node {}: PUs {}, {free} free of {all}", node.node, node.cpus));
    }
    for flavour in offer.flavours.iter().flatten() {
        let count = |count: Option<u32>| count.map_or_else(unknown, |count| count.to_string());
        let (fit, now) = (count(flavour.fit), count(flavour.fit_now));
        let problem = flavour.problem.as_ref().map_or_else(String::new, |problem| format!(": {problem}"));
        let root = match (&flavour.open_to, flavour.session) {
            (_, true) => String::new(),
            (Some(group), false) => format!(", for root and the group `{}`", group.escape_default()),
            (None, false) => ", for root".to_owned(),
        };
        let (name, vcpus, memory) = (&flavour.name, flavour.vcpus, flavour.memory);
        let plural = if vcpus == 1 { "" } else { "s" };
        lines.push(format!("flavour {name} ({vcpus} vCPU{plural}, {memory}{root}): {fit} fit, {now} now{problem}"));
    }
    for image in offer.images.iter().flatten() {
        let hash: String = image.image.chars().take(12).collect();
        lines.push(format!("image {hash} {}", image.name.as_deref().unwrap_or("?")));
    }
    for one in &offer.functions {
        let node = one.node.map_or_else(unknown, |node| node.to_string());
        let kind = if one.is_virtual { "virtual function" } else { "function" };
        lines.push(format!("{kind} {} ({}), node {node}", one.function, one.kind));
    }
    lines.join("\n")
}
