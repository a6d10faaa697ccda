//! A run on this machine, from the reservation to what is given back.

use std::fs::File;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_change::{POOL_PATIENCE, now};
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Libvirt;
use nearmetal_image::{ImageFormat, Layer};
use nearmetal_place::render;
use nearmetal_run::course::{Course, End, Gone, carry_out};
use nearmetal_run::definition::{Disk, Kernel, define};
use nearmetal_run::delta;
use nearmetal_run::event::EventKind;
use nearmetal_run::handed::Handed;
use nearmetal_run::recover::{end_guest, recover, release, take};
use nearmetal_run::reservation::{Claim, Desk, Reservation, SCHEMA};
use nearmetal_run::slice::{Choice, Chosen};
use nearmetal_run::{RunError, needs, qemu, seed};
use serde_json::json;

use super::Args;
use super::events::Events;
use super::here::Here;
use super::list::table;
use super::prepare::{Prepared, kernel, prepare};
use super::signals::Signals;
use crate::printer::Printer;
use crate::style::Format;

/// How long a libvirt that was lost may take to come back before QEMU is ended without it.
const COMING_BACK: Duration = Duration::from_secs(30);
/// Guests of runs are this libvirt's, whatever the user's environment names.
const URI: &str = "qemu:///system";
/// Digits of the UUID in a run's name.
const DIGITS: usize = 8;

/// Runs it; `None` for a dry run.
pub(super) fn run(args: &Args, events: &mut Events, printer: &mut Printer) -> Result<Option<End>, RunError> {
    let fs = HostFs::live();
    let prepared = prepare(args, &fs, printer)?;
    let uuid = new_uuid(&fs)?;
    let name = format!("run-{}-{}", prepared.flavour.name, &uuid[..DIGITS.min(uuid.len())]);
    let desk = Desk::at(&args.reservations);
    if args.dry_run {
        let chosen = choose(&prepared, &name, &uuid, &Host::read(&fs), &desk.living()?)?;
        show(args, &reservation(&prepared, &name, &uuid, &chosen), &chosen, printer);
        return Ok(None);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(RunError::NotRoot);
    }
    let files = files_of(args, &prepared, &name, &uuid)?;
    // Up to here a signal ends this program, which has taken nothing. From here on it ends the run.
    let mut signals = Signals::listen(&fs)?;
    let mut libvirt = Libvirt::open(Some(URI))?;
    events.run = Some(name.clone());
    let held = reserve(&prepared, &name, &uuid, &desk, &fs, &mut libvirt, &mut signals, events, printer);
    let hold = match held {
        // Nothing was taken.
        Err(RunError::Interrupted(signal)) => return Ok(Some(End::Interrupted(signal))),
        other => other?,
    };
    let claim = hold.claim.reservation();
    printer.say(&format!("run: {name} on PUs {}, node {}", claim.cpus, hold.chosen.placement().memory.nodes));
    let (name, uuid) = (claim.name.clone(), claim.uuid.clone());
    let Gone { end, guest } = in_the_guest(args, &prepared, &hold, &files, &fs, &mut libvirt, &mut signals, events);
    // The helper goes, and the connection that the guest is tied to.
    drop(libvirt);
    let lost = |error: &RunError| error.lost_libvirt();
    if end.as_ref().is_err_and(lost) || guest.as_ref().is_err_and(lost) {
        printer.important("run: libvirt was lost; ending the guest without the connection that started it");
    }
    let gone = if end.is_err() || guest.is_err() { end_without(&fs, &name, &uuid) } else { Ok(()) };
    match gone.and_then(|()| release(&desk, hold.claim, &fs, POOL_PATIENCE)) {
        Ok(()) => events.tell(EventKind::GivenBack),
        // The command's own end is what the caller asked for.
        Err(error) => printer.important(&format!("run: {error}")),
    }
    // Last: a reader that has paused would keep the slice. The output is there whatever became of its guest.
    if let Ok(End::Command(output)) = &end {
        printer.bytes(&output.stdout);
        printer.error_bytes(&output.stderr);
    }
    end.map(Some)
}

/// A slice that is the run's own.
struct Hold {
    claim: Claim,
    chosen: Chosen,
    host: Host,
}

/// Chooses while nobody else does, after what dead runs left is given back.
#[allow(clippy::too_many_arguments, reason = "one call, and a struct of these would only name them twice")]
fn reserve(
    prepared: &Prepared,
    name: &str,
    uuid: &str,
    desk: &Desk,
    fs: &HostFs,
    libvirt: &mut Libvirt,
    signals: &mut Signals,
    events: &mut Events,
    printer: &mut Printer,
) -> Result<Hold, RunError> {
    let turn = desk.turn_unless(&mut || signals.seen())?;
    let recovered = recover(&turn, fs, libvirt, POOL_PATIENCE)?;
    for problem in &recovered.problems {
        printer.important(&format!("run: {problem}"));
    }
    if !recovered.names.is_empty() || !recovered.problems.is_empty() {
        let (names, problems) = (recovered.names, recovered.problems);
        events.tell(EventKind::Recovered { names, problems });
    }
    // Those that could not be given back have their PUs still.
    let others = turn.others()?;
    let host = Host::read(fs);
    let chosen = choose(prepared, name, uuid, &host, &others)?;
    let claim = take(&turn, fs, reservation(prepared, name, uuid, &chosen), &chosen.planned.plan.pools, POOL_PATIENCE)?;
    events.tell(EventKind::Reserved {
        cpus: chosen.cpus.clone(),
        nodes: chosen.placement().memory.nodes.clone(),
        memory: prepared.flavour.memory,
        page_size: prepared.flavour.page_size,
    });
    Ok(Hold { claim, chosen, host })
}

fn choose(
    prepared: &Prepared,
    name: &str,
    uuid: &str,
    host: &Host,
    others: &[Reservation],
) -> Result<Chosen, RunError> {
    let Prepared { flavour, given, layers, .. } = prepared;
    Choice { flavour, name, uuid, host, given, others, has_disk: !layers.is_empty() }.choose()
}

fn reservation(prepared: &Prepared, name: &str, uuid: &str, chosen: &Chosen) -> Reservation {
    Reservation {
        schema: SCHEMA.to_owned(),
        name: name.to_owned(),
        uuid: uuid.to_owned(),
        flavour: prepared.flavour.name.clone(),
        pid: std::process::id(),
        since: now(),
        cpus: chosen.cpus.clone(),
        memory: chosen.memory.clone(),
        limits: prepared.given.memory.iter().map(|limit| limit.file.clone()).collect(),
        page_size: prepared.flavour.page_size,
        image: prepared.layers.first().map(|layer| layer.image),
        pools: Vec::new(),
    }
}

/// What the guest boots and writes to.
struct Files {
    kernel: Option<Kernel>,
    delta: Option<File>,
    /// What cloud-init reads.
    seed: Option<File>,
}

/// Makes them before anything is taken: a delta has no name, and costs nothing until it is written to.
fn files_of(args: &Args, prepared: &Prepared, name: &str, uuid: &str) -> Result<Files, RunError> {
    let directory = &args.delta_directory;
    for layer in &prepared.layers {
        needs::direct("the image", &args.directory, &layer.file)?;
    }
    let delta = prepared.layers.first().map(|base| delta::make(directory, base)).transpose()?;
    let seed = prepared.user_data.as_ref().map(|data| seed::make(directory, data, name, uuid)).transpose()?;
    Ok(Files { kernel: kernel(args, &prepared.flavour)?, delta, seed })
}

/// Makes the guest and takes it to its command's end.
#[allow(clippy::too_many_arguments, reason = "one call, and a struct of these would only name them twice")]
fn in_the_guest(
    args: &Args,
    prepared: &Prepared,
    hold: &Hold,
    files: &Files,
    fs: &HostFs,
    libvirt: &mut Libvirt,
    signals: &mut Signals,
    events: &mut Events,
) -> Gone {
    let Prepared { flavour, layers, .. } = prepared;
    if let Some(base) = layers.first() {
        events.tell(EventKind::Delta { image: base.image });
    }
    let disk = files.delta.as_ref().map(|delta| Disk {
        delta: delta::path_of(delta),
        layers: layers
            .iter()
            .map(|layer| (layer.path.clone(), ImageFormat::word(layer.format), delta::path_of(&layer.file)))
            .collect(),
    });
    let seed = files.seed.as_ref().map(delta::path_of);
    if seed.is_some() {
        events.tell(EventKind::UserData { instance_id: hold.claim.reservation().uuid.clone() });
    }
    let kernel = files.kernel.as_ref();
    let definition = match define(&hold.host, flavour, &hold.chosen, kernel, disk.as_ref(), seed.as_deref()) {
        Ok(definition) => definition,
        Err(error) => return Gone { end: Err(error), guest: Ok(()) },
    };
    let reserved = hold.claim.reservation();
    let course = Course {
        name: &reserved.name,
        uuid: &reserved.uuid,
        definition: &definition,
        command: &args.command,
        boot_limit: flavour.boot_limit,
        time_limit: args.time_limit.or(flavour.time_limit),
        grace: flavour.grace,
    };
    let (plan, placement) = (&hold.chosen.planned.plan, hold.chosen.placement());
    let seed = definition.seed.as_deref();
    let handed = handed(files, layers);
    let mut here = Here::new(fs, plan, placement, handed, seed, signals, events);
    carry_out(&course, libvirt, &mut here)
}

/// What the guest is given open, and how.
fn handed<'a>(files: &'a Files, layers: &'a [Layer]) -> Vec<Handed<'a>> {
    let base =
        layers.iter().map(|layer| Handed { what: "an image that is only read", file: &layer.file, writable: false });
    let delta = files.delta.iter().map(|file| Handed { what: delta::WHAT, file, writable: true });
    let seed = files.seed.iter().map(|file| Handed { what: seed::WHAT, file, writable: false });
    delta.chain(base).chain(seed).collect()
}

/// Ends a guest through a connection of its own; without libvirt, by the process.
fn end_without(fs: &HostFs, name: &str, uuid: &str) -> Result<(), RunError> {
    let began = Instant::now();
    let last = loop {
        let ended = Libvirt::open(Some(URI))
            .map_err(RunError::from)
            .and_then(|mut libvirt| end_guest(&mut libvirt, name, uuid));
        match ended {
            Ok(()) => return Ok(()),
            Err(error) if began.elapsed() >= COMING_BACK => break error,
            Err(_) => sleep(Duration::from_millis(500)),
        }
    };
    let not_given = |reason: String| RunError::NotGivenBack { what: format!("the guest `{name}`"), reason };
    // It may still be stored there: the reservation stays, and the next run asks again.
    let unasked = format!("libvirt cannot be asked ({last})");
    Err(not_given(match qemu::end(fs, uuid) {
        Ok(_) => unasked,
        Err(why) => format!("{why}, and {unasked}"),
    }))
}

fn new_uuid(fs: &HostFs) -> Result<String, RunError> {
    let text = fs.read("/proc/sys/kernel/random/uuid").map_err(|error| RunError::Given(error.to_string()))?;
    Ok(text.trim().to_owned())
}

/// What a dry run says.
fn show(args: &Args, reservation: &Reservation, chosen: &Chosen, printer: &mut Printer) {
    match args.format {
        Format::Json => {
            let document = json!({
                "schema": "nearmetal.run-plan/1",
                "reservation": reservation,
                "plan": chosen.planned.plan,
            });
            printer.data(&serde_json::to_string_pretty(&document).unwrap_or_default());
        }
        Format::Text => {
            printer.data(&table(std::slice::from_ref(reservation)));
            printer.data("");
            printer.data(&render(&chosen.planned));
        }
    }
}
