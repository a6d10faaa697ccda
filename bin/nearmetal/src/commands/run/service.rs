//! The libvirt that starts a run's guest: the system's, or one of the run's own. And who ends the guest where it is lost.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_host::HostFs;
use nearmetal_hypervisor::{Hypervisor, Libvirt};
use nearmetal_run::event::EventKind;
use nearmetal_run::qemu_log::QemuLog;
use nearmetal_run::recover::end_guest;
use nearmetal_run::reservation::Reservation;
use nearmetal_run::session::{self, Directory, Session};
use nearmetal_run::{RunError, qemu};

use super::events::Events;
use super::mode::Mode;
use super::signals::Signals;
use crate::guest_profile::Denied;
use crate::printer::Printer;

/// How long a libvirt that was lost may take to come back before QEMU is ended without it.
const COMING_BACK: Duration = Duration::from_secs(30);
/// Guests of runs in system mode are this libvirt's, whatever the user's environment names.
const URI: &str = "qemu:///system";

/// Whose libvirt it is, and how far it has come up.
pub(super) enum Service {
    /// The system's.
    System(Libvirt),
    /// The run's own.
    Session(OwnSession),
}

/// A libvirt of the run's own, which begins only when the run has its slice.
#[derive(Default)]
pub(super) struct OwnSession {
    directory: Option<Directory>,
    session: Option<Session>,
    libvirt: Option<Libvirt>,
}

impl Service {
    /// Before anything is taken.
    pub(super) fn open(mode: Mode) -> Result<Self, RunError> {
        Ok(match mode {
            Mode::System => {
                let mut libvirt = Libvirt::open(Some(URI))?;
                // It is reached with the first question, which would come when the run has its slice.
                libvirt.versions()?;
                Self::System(libvirt)
            }
            Mode::Session => {
                session::program()?;
                Self::Session(OwnSession::default())
            }
        })
    }

    /// Whether a guest in huge pages of a node starts under what confines guests of the system's libvirt. A session's are not confined.
    ///
    /// # Errors
    /// It would not, with what helps.
    pub(super) fn allows_huge_pages(&mut self, fs: &HostFs) -> Result<(), RunError> {
        let Self::System(libvirt) = self else { return Ok(()) };
        match Denied::here(fs, libvirt) {
            None => Ok(()),
            Some(denied) => Err(denied.refusal("a run in huge pages").into()),
        }
    }

    pub(super) fn is_session(&self) -> bool {
        matches!(self, Self::Session(_))
    }

    /// Ends the guest of a dead run of this user.
    pub(super) fn end_dead(&mut self, fs: &HostFs, dead: &Reservation) -> Result<(), RunError> {
        match self {
            Self::System(libvirt) => end_guest(libvirt, &dead.name, &dead.uuid),
            // The libvirt that started it was its run's own.
            Self::Session(_) => end_process(fs, &dead.name, &dead.uuid),
        }
    }

    /// What has to be done while nobody else takes a slice: problems are told, and keep nobody from running.
    pub(super) fn prepare(&mut self, fs: &HostFs, uuid: &str) -> Result<Vec<String>, RunError> {
        let Self::Session(own) = self else { return Ok(Vec::new()) };
        let base = Path::new(session::BASE);
        let problems = session::sweep(fs, base);
        own.directory = Some(Directory::make(base, uuid)?);
        Ok(problems)
    }

    /// Where QEMU's words are.
    pub(super) fn log(&self, name: &str) -> QemuLog {
        match self {
            Self::Session(OwnSession { directory: Some(directory), .. }) => session::log(directory.path(), name),
            _ => QemuLog::Stays(format!("/var/log/libvirt/qemu/{name}.log").into()),
        }
    }

    /// The libvirt to start the guest by; one of the run's own is started for it.
    pub(super) fn start(&mut self, events: &mut Events, signals: &mut Signals) -> Result<&mut Libvirt, RunError> {
        let own = match self {
            Self::System(libvirt) => return Ok(libvirt),
            Self::Session(own) => own,
        };
        let directory = own.directory.take().ok_or_else(|| RunError::Session("it has no directory".to_owned()))?;
        let program = session::program()?;
        let session = Session::start(directory, &program, &mut || signals.seen())?;
        let libvirt = Libvirt::open(Some(&session.uri()))?;
        own.session = Some(session);
        events.tell(EventKind::Daemon { program: program.display().to_string() });
        Ok(own.libvirt.insert(libvirt))
    }

    /// Ends the helper, and with it the connection that the guest is tied to; then the guest, if it is there still, and a libvirt of the
    /// run's own. `lost`: libvirt, or the way to it, was lost when
    /// the guest may have been there; `failed`: something did not end as it was to.
    ///
    /// # Errors
    /// The guest is not gone.
    pub(super) fn end(
        self,
        fs: &HostFs,
        (name, uuid): (&str, &str),
        (lost, failed): (bool, bool),
        printer: &mut Printer,
    ) -> Result<(), RunError> {
        if lost {
            printer.important("run: libvirt was lost; ending the guest without the connection that started it");
        }
        match self {
            Self::System(libvirt) => {
                drop(libvirt);
                if failed { end_without(fs, name, uuid) } else { Ok(()) }
            }
            Self::Session(OwnSession { directory, session, libvirt }) => {
                drop(libvirt);
                // Before its daemon, which would leave it.
                let gone = end_process(fs, name, uuid);
                drop(directory);
                if let Some(Err(error)) = session.map(Session::end) {
                    printer.important(&format!("run: {error}: the next run removes it"));
                }
                gone
            }
        }
    }
}

fn not_given_back(name: &str, reason: String) -> RunError {
    RunError::NotGivenBack { what: format!("the guest `{name}`"), reason }
}

fn end_process(fs: &HostFs, name: &str, uuid: &str) -> Result<(), RunError> {
    qemu::end(fs, uuid).map(drop).map_err(|why| not_given_back(name, why))
}

/// Ends a guest of the system's libvirt through a connection of its own; without libvirt, by the process.
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
    // It may still be stored there: the reservation stays, and the next run asks again.
    let unasked = format!("libvirt cannot be asked ({last})");
    Err(not_given_back(
        name,
        match qemu::end(fs, uuid) {
            Ok(_) => unasked,
            Err(why) => format!("{why}, and {unasked}"),
        },
    ))
}
