//! A run on this machine, from the reservation to what is given back.

use std::fs::File;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_change::verify::{CheckKind, Effort, Outcome, judge, observe};
use nearmetal_change::{POOL_PATIENCE, now};
use nearmetal_host::{Host, HostFs, guests};
use nearmetal_hypervisor::{Definition, Hypervisor, Libvirt};
use nearmetal_image::ImageFormat;
use nearmetal_place::{Placement, Plan, render};
use nearmetal_run::RunError;
use nearmetal_run::course::{Course, End, Gone, Step, Watch, carry_out};
use nearmetal_run::definition::{Disk, Kernel, define};
use nearmetal_run::delta;
use nearmetal_run::event::EventKind;
use nearmetal_run::recover::{end_guest, recover, release, take};
use nearmetal_run::reservation::{Claim, Desk, Reservation, SCHEMA};
use nearmetal_run::seed;
use nearmetal_run::slice::{Choice, Chosen};
use serde_json::json;

use super::Args;
use super::events::Events;
use super::list::table;
use super::prepare::{Prepared, kernel, prepare};
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
    // Before anything is taken: from here on a signal ends the run, and not this program.
    let mut signals = Signals::listen()?;
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
    let mut libvirt = Libvirt::open(Some(URI))?;
    events.run = Some(name.clone());
    let hold = reserve(&prepared, &name, &uuid, &desk, &fs, &mut libvirt, events, printer)?;
    let claim = hold.claim.reservation();
    printer.say(&format!("run: {name} on PUs {}, node {}", claim.cpus, hold.chosen.placement().memory.nodes));
    let (name, uuid) = (claim.name.clone(), claim.uuid.clone());
    let Gone { end, guest } = in_the_guest(args, &prepared, &hold, &files, &fs, &mut libvirt, &mut signals, events);
    // The helper goes, and the connection that the guest is tied to.
    drop(libvirt);
    // The command's output is there whatever becomes of its guest.
    if let Ok(End::Command(output)) = &end {
        printer.bytes(&output.stdout);
        let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), &output.stderr);
        if output.truncated {
            printer.important("run: the guest's agent cut the output: have the command write a file, or less");
        }
    }
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
    events: &mut Events,
    printer: &mut Printer,
) -> Result<Hold, RunError> {
    let turn = desk.turn()?;
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
    let seed = definition.seed.as_deref().zip(files.seed.as_ref());
    let mut here = Here { fs, plan, placement, seed, signals, events, looked: (0, 0) };
    carry_out(&course, libvirt, &mut here)
}

/// This machine, as a run sees it.
struct Here<'a> {
    fs: &'a HostFs,
    plan: &'a Plan,
    placement: &'a Placement,
    /// The disk with the user data: its name in the guest, and the file.
    seed: Option<(&'a str, &'a File)>,
    signals: &'a mut Signals,
    events: &'a mut Events,
    /// Checks of the read-back, and those that told nothing.
    looked: (usize, usize),
}

impl Watch for Here<'_> {
    fn step(&mut self, step: Step) {
        let (checks, untold) = self.looked;
        self.events.tell(match step {
            Step::Started => EventKind::Started,
            Step::ReadBack => EventKind::ReadBack { checks, untold },
            Step::Agent => EventKind::Agent,
            Step::CommandStarted => EventKind::CommandStarted,
            Step::Ended => EventKind::CommandEnded,
        });
    }

    fn interrupted(&mut self) -> Option<i32> {
        self.signals.seen()
    }

    fn read_back(&mut self, hypervisor: &mut dyn Hypervisor) -> Result<(), Vec<String>> {
        // The guest boots meanwhile: it is not asked, and its disk is not read.
        let none = Duration::ZERO;
        let effort = Effort { read_in_guest: false, agent: None, natural: none, hook: none, ..Effort::default() };
        let observed = observe(self.fs, hypervisor, self.plan, self.placement, &effort);
        let verification = judge(self.plan, self.placement, &observed);
        self.looked = (verification.checks.len(), verification.untold());
        // Where its threads and pages are has to be seen: what cannot be read is no proof.
        let must_be_seen =
            |kind| matches!(kind, CheckKind::Running | CheckKind::Vcpu | CheckKind::Emulator | CheckKind::Iothread);
        let wrong = verification.checks.iter().filter(|check| {
            check.outcome == Outcome::Mismatch || (must_be_seen(check.kind) && check.outcome != Outcome::Ok)
        });
        let mut wrong: Vec<String> = wrong
            .map(|check| {
                let found = check.found.as_deref().unwrap_or("unknown");
                format!("{}: planned {}, found {found}", check.subject, check.planned)
            })
            .collect();
        if let Some((target, seed)) = self.seed {
            self.looked.0 += 1;
            let (name, uuid) = (&self.placement.guest, &self.placement.uuid);
            let live = hypervisor.domain_xml(name, Definition::Live).map_err(|error| error.to_string());
            wrong.extend(live.and_then(|live| seed::read_back(self.fs, uuid, &live, target, seed)).err());
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
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
    let find = || guests::pid_of(fs, uuid).map_err(|error| not_given(error.to_string()));
    // It may still be stored there: the reservation stays, and the next run asks again.
    let unasked = || not_given(format!("libvirt cannot be asked ({last})"));
    let Some(pid) = find()? else { return Err(unasked()) };
    let process = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(process) = process {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
    for _ in 0..100 {
        if find()?.is_none() {
            return Err(unasked());
        }
        sleep(Duration::from_millis(100));
    }
    Err(not_given(format!("process {pid} does not end, and libvirt cannot be asked ({last})")))
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

/// Signals that tell a run to end. The second one ends this program at once; the guest goes with it.
struct Signals {
    seen: std::sync::mpsc::Receiver<i32>,
}

impl Signals {
    fn listen() -> Result<Self, RunError> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let (sender, seen) = std::sync::mpsc::channel();
        let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])
            .map_err(|error| RunError::Given(format!("cannot listen for signals: {error}")))?;
        std::thread::spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                if count > 0 {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                let _ = sender.send(signal);
            }
        });
        Ok(Self { seen })
    }

    fn seen(&mut self) -> Option<i32> {
        self.seen.try_recv().ok()
    }
}
