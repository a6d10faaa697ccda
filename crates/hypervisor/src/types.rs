//! What goes into and comes out of a [`crate::Hypervisor`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Version of the libvirt daemon, `9.0.0`.
    pub libvirt: String,
    /// Version of the hypervisor it drives (QEMU's, for the `qemu` driver), `7.2.0`.
    pub hypervisor: String,
    /// The driver's name for that hypervisor: `QEMU`, or `TEST` for libvirt's test driver.
    pub hypervisor_kind: String,
    /// The URI of the connection, as libvirt itself states it.
    pub uri: String,
}

/// One domain, without its XML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainSummary {
    /// Its name.
    pub name: String,
    /// Its UUID in the usual 36-character form.
    pub uuid: String,
    /// What it is doing.
    pub state: DomainState,
    /// Why its vCPUs are stopped; `None` where it is not paused.
    #[serde(default)]
    pub pause: Option<PauseReason>,
    /// Whether it has a stored definition; a transient domain disappears when it stops.
    pub persistent: bool,
    /// Whether libvirt starts it with the host.
    pub autostart: bool,
    /// Whether libvirt keeps the memory of a former run (`virsh managedsave`): the next start resumes that run with the
    /// definition of that time, whatever has been defined since.
    #[serde(default)]
    pub managed_save: bool,
    /// libvirt's number of the running instance; `None` when it is off.
    pub id: Option<u32>,
}

/// A file that a guest is given open, instead of by its name: QEMU's user need not be able to reach it, and it need not
/// have a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassedFile {
    /// What the domain XML calls it: `<source fdgroup='…'>`.
    pub group: String,
    /// Where it is opened, by whoever asks libvirt; `/proc/PID/fd/N` for one that is open in another process.
    pub path: String,
    /// Whether the guest may write to it.
    pub writable: bool,
}

/// The state of a domain, as libvirt distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DomainState {
    /// vCPUs run.
    Running,
    /// Running, and blocked on a resource (Xen's word; QEMU does not use it).
    Blocked,
    /// Exists, and its vCPUs are stopped.
    Paused,
    /// Asked to stop, not yet stopped.
    ShuttingDown,
    /// Not running.
    ShutOff,
    /// Stopped by a crash; with `on_crash` set to preserve, QEMU is still there.
    Crashed,
    /// Suspended to RAM by the guest itself.
    GuestSuspended,
    /// A state this version does not know.
    Unknown,
}

impl DomainState {
    /// Whether there is no running instance.
    pub fn is_off(self) -> bool {
        self == Self::ShutOff
    }
}

impl fmt::Display for DomainState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
            Self::ShuttingDown => "shutting down",
            Self::ShutOff => "shut off",
            Self::Crashed => "crashed",
            Self::GuestSuspended => "suspended by the guest",
            Self::Unknown => "in a state unknown to nearmetal",
        })
    }
}

/// Why a domain is paused, as libvirt tells it (`virDomainPausedReason`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PauseReason {
    /// libvirt does not know, or this version does not know what it says.
    Unknown,
    /// Somebody asked for it.
    User,
    /// It goes to another host, or comes from one.
    Migration,
    /// Its memory is being saved.
    Save,
    /// Its memory is being dumped.
    Dump,
    /// A disk failed.
    IoError,
    /// Its watchdog has fired.
    Watchdog,
    /// It is being restored from a snapshot, or was restored to one that was paused.
    FromSnapshot,
    /// It is shutting down.
    ShuttingDown,
    /// A snapshot is being made.
    Snapshot,
    /// The guest has crashed.
    Crashed,
    /// It is being started.
    StartingUp,
    /// It runs on another host, and its memory is following.
    Postcopy,
    /// … and that has failed.
    PostcopyFailed,
    /// libvirt could not bring to an end what it had begun.
    ApiError,
}

impl PauseReason {
    /// Whether libvirt is at work on it, however long that takes: it will tell when it has ended.
    pub fn is_passing(self) -> bool {
        match self {
            Self::Migration
            | Self::Save
            | Self::Dump
            | Self::FromSnapshot
            | Self::ShuttingDown
            | Self::Snapshot
            | Self::StartingUp
            | Self::Postcopy => true,
            Self::Unknown
            | Self::User
            | Self::IoError
            | Self::Watchdog
            | Self::Crashed
            | Self::PostcopyFailed
            | Self::ApiError => false,
        }
    }

    /// Whether something failed, and nobody meant it to be paused.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::IoError | Self::Watchdog | Self::Crashed | Self::PostcopyFailed | Self::ApiError)
    }
}

/// Which of a domain's two definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Definition {
    /// The stored one, used at the next start. Secrets (a VNC password) are included, since the text is written back:
    /// mask it before it is shown.
    Inactive,
    /// The one in force, with what libvirt filled in; the stored one if the domain is off. Without secrets.
    Live,
}

/// How a guest is asked to stop. None of these ever destroys it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShutdownMode {
    /// By the guest agent.
    Agent,
    /// By the ACPI power button.
    Acpi,
    /// By the agent; by ACPI if there is no agent, or if half of the time is over and the guest still runs.
    AgentThenAcpi,
}

/// Where a pin is written. Neither: nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The running instance; lost when it stops.
    pub live: bool,
    /// The stored definition; used from the next start on.
    pub config: bool,
}

impl Scope {
    /// The running instance alone.
    pub const LIVE: Self = Self { live: true, config: false };
    /// The stored definition alone.
    pub const CONFIG: Self = Self { live: false, config: true };
    /// Both.
    pub const BOTH: Self = Self { live: true, config: true };
}

/// What becomes of the file with a domain's UEFI variables when its definition is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nvram {
    /// It stays, and the next domain of that name starts with it.
    Keep,
    /// It goes too.
    Remove,
}

/// Something that happened to a domain, as libvirt tells those who follow its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DomainEvent {
    /// Its name.
    pub domain: String,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a domain. libvirt tells finer; this is what a difference can come of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A running instance began: booted, restored, or come from another host.
    Started,
    /// Its vCPUs run again.
    Resumed,
    /// Its vCPUs were stopped: by somebody, for a save, or by an error.
    Suspended,
    /// The running instance ended, or is about to.
    Stopped,
    /// The guest restarted itself; its process is the same.
    Rebooted,
    /// A device was plugged in or out.
    DevicesChanged,
    /// Pins, weights, quotas, throttles or the balloon were set.
    Tuned,
    /// A definition was stored or removed.
    Defined,
}

impl fmt::Display for EventKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Started => "started",
            Self::Resumed => "resumed",
            Self::Suspended => "suspended",
            Self::Stopped => "stopped",
            Self::Rebooted => "rebooted",
            Self::DevicesChanged => "devices changed",
            Self::Tuned => "tuned",
            Self::Defined => "redefined",
        })
    }
}
