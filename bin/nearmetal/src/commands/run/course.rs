//! A run on this machine, from the reservation to what is given back.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nearmetal_change::{POOL_PATIENCE, boot_id, devices, now};
use nearmetal_host::assignable::{Assignable, examine};
use nearmetal_host::{Host, HostFs, guests, ledger};
use nearmetal_hypervisor::Libvirt;
use nearmetal_image::{ImageFormat, Layer};
use nearmetal_place::render;
use nearmetal_run::console::Sink;
use nearmetal_run::course::{Course, End, Gone, carry_out};
use nearmetal_run::definition::{Disk, Kernel, define};
use nearmetal_run::delta;
use nearmetal_run::event::EventKind;
use nearmetal_run::flavour::Network;
use nearmetal_run::function::{self, Lent, give_back};
use nearmetal_run::handed::Handed;
use nearmetal_run::promised::with_unseen;
use nearmetal_run::qemu_log::QemuLog;
use nearmetal_run::recover::{forget_others, recover, release, take};
use nearmetal_run::reservation::{Claim, Desk, Reservation};
use nearmetal_run::slice::{Choice, Chosen};
use nearmetal_run::{RunError, needs, seed};
use nearmetal_units::PciAddress;
use serde_json::json;

use super::Args;
use super::caller::Caller;
use super::events::{Ended, Events};
use super::here::{Given, Here};
use super::list::table;
use super::mode::Mode;
use super::prepare::{Prepared, kernel, prepare};
use super::serve::READING;
use super::service::Service;
use super::signals::Signals;
use crate::printer::Printer;
use crate::state::StateArgs;
use crate::style::Format;

/// Digits of the UUID in a run's name.
const DIGITS: usize = 8;

/// Runs it; `None` for a dry run.
pub(super) fn run(args: &Args, caller: Caller, events: &mut Events, printer: &mut Printer) -> Ended {
    let fs = HostFs::live();
    let mode = Mode::of(args, rustix::process::geteuid().is_root())?;
    let prepared = prepare(args, mode, &caller, &fs, printer)?;
    let uuid = new_uuid(&fs)?;
    let name = format!("run-{}-{}", prepared.flavour.name, &uuid[..DIGITS.min(uuid.len())]);
    let desk = mode.desk(args);
    if args.dry_run {
        // Closed to this user: with the group to join.
        let living = desk.living().or_else(|error| desk.check().and(Err(error)))?;
        let host = with_unseen(&fs, Host::read(&fs), &living);
        let chosen = choose(&prepared, &name, &uuid, (&fs, &host), &living)?;
        show(args, &reservation(&prepared, &name, &uuid, &fs, &chosen)?, &chosen, printer);
        return Ok(None);
    }
    desk.check()?;
    let files = files_of(args, &prepared, &caller, &name, &uuid)?;
    let mut service = Service::open(mode)?;
    if prepared.flavour.page_size.is_some() {
        service.allows_huge_pages(&fs)?;
    }
    // Up to here a signal ends this program, which has taken nothing. From here on it ends the run.
    let mut signals = Signals::listen()?;
    let asked_by = caller.uid();
    let Caller { console, user, .. } = caller;
    let connection = user.map(|user| user.connection);
    let hears = connection.as_ref().map(UnixStream::try_clone).transpose();
    if let Some(hears) = hears.map_err(|error| RunError::Service(error.to_string()))? {
        signals.hear_from(hears);
    }
    events.run = Some(name.clone());
    let mut scene = Scene { fs: &fs, service, signals: &mut signals, events, printer, console, asked_by };
    let mut hold = match scene.reserve(&prepared, &name, &uuid, &desk) {
        // Nothing was taken.
        Err(RunError::Interrupted(signal)) => return Ok(Some(End::Interrupted(signal))),
        other => other?,
    };
    let claim = hold.claim.reservation();
    scene.printer.say(&format!("run: {name} on PUs {}, node {}", claim.cpus, hold.chosen.placement().memory.nodes));
    let log = scene.service.log(&name);
    let (Gone { end, guest }, begun) = scene.in_the_guest(args, &prepared, &hold, &files, &log);
    let Scene { service, events, printer, signals, .. } = scene;
    let lost = |error: &RunError| error.lost_libvirt();
    let is_lost = begun && end.as_ref().is_err_and(lost) || guest.as_ref().is_err_and(lost);
    let gone = service.end(&fs, (&name, &uuid), (is_lost, end.is_err() || guest.is_err()), printer);
    let given_back = match gone {
        Ok(()) => {
            // Of one that went wrong, a message may name it.
            let removed = if end.is_ok() { log.remove() } else { Ok(()) };
            if let Err(error) = removed {
                printer.important(&format!("run: {error}"));
            }
            release(&desk, hold.claim, &fs, POOL_PATIENCE)
        }
        // Without libvirt, which the next run has to wait for.
        Err(error) => {
            if let Err(error) = give_back(&fs, &mut hold.claim, POOL_PATIENCE) {
                printer.important(&format!("run: {error}"));
            }
            Err(error)
        }
    };
    match given_back {
        Ok(()) => events.tell(EventKind::GivenBack),
        // The command's own end is what the caller asked for.
        Err(error) => printer.important(&format!("run: {error}")),
    }
    // Told to stop, the service does not wait long for a user who does not read.
    if let Some(connection) = connection {
        signals.after_own(READING, move || drop(connection.shutdown(Shutdown::Both)));
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

/// What a run meets and tells, from its reservation to its guest's end.
struct Scene<'a> {
    fs: &'a HostFs,
    service: Service,
    signals: &'a mut Signals,
    events: &'a mut Events,
    printer: &'a mut Printer,
    /// Where the guest's console goes, until there is a guest.
    console: Option<Sink>,
    /// The user for whom the service does it.
    asked_by: Option<u32>,
}

impl Scene<'_> {
    /// Chooses while nobody else does, after what dead runs of this user left is given back.
    fn reserve(&mut self, prepared: &Prepared, name: &str, uuid: &str, desk: &Desk) -> Result<Hold, RunError> {
        let Self { fs, service, signals, events, printer, asked_by, .. } = self;
        let fs: &HostFs = fs;
        let turn = desk.turn_unless(&mut || signals.seen())?;
        let mut end = |dead: &Reservation| service.end_dead(fs, dead);
        let mut recovered = recover(&turn, fs, &mut end, &set_aside, POOL_PATIENCE)?;
        // One look at /proc for all dead runs of other users, if there are any.
        let running = OnceCell::new();
        let lives = |dead: &Reservation| {
            let running = running.get_or_init(|| guests::running(fs).ok());
            // Without it, nobody is known to be gone.
            running.as_ref().is_none_or(|runs| runs(&dead.uuid, dead.uid))
        };
        forget_others(&turn, &lives)?;
        // Those whose guest could not be ended have their PUs still.
        let others = turn.others(&lives)?;
        let host = with_unseen(fs, Host::read(fs), &others);
        let chosen = choose(prepared, name, uuid, (fs, &host), &others)?;
        let reserved = reservation(prepared, name, uuid, fs, &chosen)?;
        recovered.problems.extend(service.prepare(fs, uuid)?);
        for problem in &recovered.problems {
            printer.important(&format!("run: {problem}"));
        }
        if !recovered.names.is_empty() || !recovered.problems.is_empty() {
            let (names, problems) = (recovered.names, recovered.problems);
            events.tell(EventKind::Recovered { names, problems });
        }
        let pools = &chosen.planned.plan.pools;
        let reserved = Reservation { asked_by: *asked_by, ..reserved };
        let claim = take(&turn, fs, reserved, pools, POOL_PATIENCE)?;
        events.tell(EventKind::Reserved {
            cpus: chosen.cpus.clone(),
            nodes: chosen.placement().memory.nodes.clone(),
            memory: prepared.flavour.memory,
            page_size: prepared.flavour.page_size,
            functions: chosen.function.into_iter().collect(),
        });
        Ok(Hold { claim, chosen, host })
    }

    /// Makes the guest and takes it to its command's end; and whether there may have been a guest.
    fn in_the_guest(
        &mut self,
        args: &Args,
        prepared: &Prepared,
        hold: &Hold,
        files: &Files,
        log: &QemuLog,
    ) -> (Gone, bool) {
        let charged = self.service.is_session();
        match self.service.start(self.events, self.signals) {
            Ok(libvirt) => {
                let (signals, events, console) = (&mut *self.signals, &mut *self.events, self.console.take());
                let meets =
                    Meets { fs: self.fs, libvirt, signals, events, printer: &mut *self.printer, console, charged };
                (in_the_guest(args, prepared, hold, files, log, meets), true)
            }
            Err(error) => (Gone { end: self.signals.or(error), guest: Ok(()) }, false),
        }
    }
}

/// What the guest meets of this machine.
struct Meets<'a> {
    fs: &'a HostFs,
    libvirt: &'a mut Libvirt,
    signals: &'a mut Signals,
    events: &'a mut Events,
    printer: &'a mut Printer,
    console: Option<Sink>,
    /// Whether the guest has to be in this job's control group.
    charged: bool,
}

fn choose(
    prepared: &Prepared,
    name: &str,
    uuid: &str,
    (fs, host): (&HostFs, &Host),
    others: &[Reservation],
) -> Result<Chosen, RunError> {
    let Prepared { flavour, given, layers, beside, .. } = prepared;
    let (functions, has_disk) = (&functions(fs, host, &flavour.network)[..], !layers.is_empty());
    Choice { flavour, name, uuid, host, given, others, functions, has_disk, beside: *beside }.choose()
}

/// Functions, with who uses those that seem free.
pub(crate) fn with_users(fs: &HostFs, mut functions: Vec<Assignable>) -> Vec<Assignable> {
    function::note_users(fs, &mut functions, &set_aside());
    functions
}

/// Functions that nearmetal was told to keep for guests. A journal that this user cannot read sets nothing aside.
fn set_aside() -> BTreeSet<PciAddress> {
    let kernel = HostFs::live();
    let boot = boot_id(&kernel).unwrap_or_default();
    devices::set_aside(&kernel, &StateArgs::of(None).journal().transactions().unwrap_or_default(), &boot)
}

/// What a virtual function is chosen from: nothing for a guest that wants none.
fn functions(fs: &HostFs, host: &Host, network: &Network) -> Vec<Assignable> {
    match network {
        Network::Function(_) => with_users(fs, examine(host, &ledger::read(fs, host))),
        Network::None | Network::User | Network::Bridge(_) => Vec::new(),
    }
}

fn reservation(
    prepared: &Prepared,
    name: &str,
    uuid: &str,
    fs: &HostFs,
    chosen: &Chosen,
) -> Result<Reservation, RunError> {
    let functions = chosen.function.map(|function| Lent::now(fs, function)).transpose()?;
    Ok(Reservation {
        since: now(),
        cpus: chosen.cpus.clone(),
        memory: chosen.memory.clone(),
        limits: prepared.given.limit_files(),
        limit_groups: prepared.given.limit_groups(),
        page_size: prepared.flavour.page_size,
        image: prepared.layers.first().map(|layer| layer.image),
        functions: functions.into_iter().collect(),
        ..Reservation::empty(name, uuid, &prepared.flavour.name)
    })
}

/// What the guest boots and writes to.
struct Files {
    kernel: Option<Kernel>,
    delta: Option<File>,
    /// What cloud-init reads.
    seed: Option<File>,
}

/// Makes them before anything is taken: a delta has no name, and costs nothing until it is written to.
fn files_of(args: &Args, prepared: &Prepared, caller: &Caller, name: &str, uuid: &str) -> Result<Files, RunError> {
    let directory = &prepared.delta_directory;
    for layer in &prepared.layers {
        needs::direct("the image", &args.places.directory, &layer.file)?;
    }
    let delta = prepared.layers.first().map(|base| delta::make(directory, base)).transpose()?;
    if let (Mode::Session, Some(delta)) = (prepared.mode, &delta) {
        needs::on_a_disk(delta::WHAT, directory, delta)?;
    }
    if let (Some(_), Some(base), Some(delta)) = (caller.uid(), prepared.layers.first(), &delta) {
        delta::leaves_room(directory, delta, base)?;
    }
    let seed = caller.user_data.as_ref().map(|data| seed::make(directory, data, name, uuid)).transpose()?;
    Ok(Files { kernel: kernel(args, prepared)?, delta, seed })
}

fn in_the_guest(args: &Args, prepared: &Prepared, hold: &Hold, files: &Files, log: &QemuLog, meets: Meets<'_>) -> Gone {
    let Meets { fs, libvirt, signals, events, printer, console, charged } = meets;
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
        time_limit: time_limit(args.time_limit, flavour.time_limit, reserved.asked_by.is_some()),
        grace: flavour.grace,
        log,
    };
    let (plan, placement) = (&hold.chosen.planned.plan, hold.chosen.placement());
    let seed = definition.seed.as_deref();
    let handed = handed(files, layers);
    let given = Given { handed, functions: &reserved.functions, seed, charged };
    let mut here = Here::new(fs, plan, placement, given, console, (signals, events));
    let gone = carry_out(&course, libvirt, &mut here);
    if let Some(missing) = here.end() {
        printer.important(&format!("run: {missing}"));
    }
    gone
}

/// The flavour's limit is a default for whoever runs this program, and a limit for a user whose run root does.
fn time_limit(wanted: Option<Duration>, flavours: Option<Duration>, for_user: bool) -> Option<Duration> {
    match (wanted, flavours) {
        (Some(wanted), Some(most)) if for_user => Some(wanted.min(most)),
        _ => wanted.or(flavours),
    }
}

/// What the guest is given open, and how.
fn handed<'a>(files: &'a Files, layers: &'a [Layer]) -> Vec<Handed<'a>> {
    let base =
        layers.iter().map(|layer| Handed { what: "an image that is only read", file: &layer.file, writable: false });
    let delta = files.delta.iter().map(|file| Handed { what: delta::WHAT, file, writable: true });
    let seed = files.seed.iter().map(|file| Handed { what: seed::WHAT, file, writable: false });
    delta.chain(base).chain(seed).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_cannot_have_a_longer_time_than_the_flavour_has_from_root() {
        let seconds = |number| Some(Duration::from_secs(number));
        assert_eq!(time_limit(seconds(9), seconds(5), false), seconds(9));
        assert_eq!(time_limit(seconds(9), seconds(5), true), seconds(5));
        assert_eq!(time_limit(seconds(4), seconds(5), true), seconds(4));
        assert_eq!((time_limit(None, seconds(5), true), time_limit(seconds(4), None, true)), (seconds(5), seconds(4)));
    }
}
