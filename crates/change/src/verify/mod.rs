//! Reading back: what the kernel, QEMU and libvirt really do, beside what the plan says.
//!
//! [`observe`] gathers and decides nothing; [`judge`] decides and reads nothing, so every verdict can be tested from
//! facts written by hand.

mod cells;
mod definition;
mod engine;
mod functions;
mod gather;
mod guest_functions;
mod guest_view;
mod interrupts;
mod judge;
mod limits;
mod load;
mod memory;
mod networks;
mod observed;
mod queues;
mod rules_kept;
mod text;
mod threads;
mod touched;

pub(crate) use definition::planned_otherwise;
pub use engine::EngineEvidence;
pub(crate) use functions::holder;
pub use gather::{Effort, engine_under, observe};
pub use guest_functions::GuestFunction;
pub use guest_view::{GuestDisk, GuestNode, GuestView};
pub use interrupts::{DriveInterrupts, ObservedInterrupt};
pub use judge::judge;
pub use load::Load;
pub use observed::{
    Observed, ObservedCard, ObservedCells, ObservedDisk, ObservedFunction, ObservedGroup, ObservedPool, ObservedQueues,
    RingMovement,
};
pub use queues::TAINTS;
pub(crate) use rules_kept::rules_broken;
pub use rules_kept::rules_kept;

use serde::{Deserialize, Serialize};

use crate::plan_file::is_of_memory;

/// The schema this version writes.
pub const VERIFICATION_SCHEMA: &str = "nearmetal.verification/1";

/// What was read back of one guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// [`VERIFICATION_SCHEMA`].
    pub schema: String,
    /// Domain name.
    pub guest: String,
    /// When it was read.
    pub taken: String,
    /// One per thing looked at.
    pub checks: Vec<Check>,
    /// What the guest itself sees, if it could be asked.
    pub guest_view: Option<GuestView>,
}

/// One thing that was read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at: `vCPU 0 (thread 4711)`.
    pub subject: String,
    /// Its kind.
    pub kind: CheckKind,
    /// What the plan says.
    pub planned: String,
    /// What is; `None` if it could not be read.
    pub found: Option<String>,
    /// How the two compare.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Where it was read: a path, or what was asked.
    pub place: Option<String>,
}

/// What a check looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// Whether the guest runs, and its vCPUs with it.
    Running,
    /// PUs of a vCPU thread.
    Vcpu,
    /// PUs of the emulator thread.
    Emulator,
    /// PUs of an iothread.
    Iothread,
    /// PUs of a vhost worker.
    Vhost,
    /// PUs of a block-layer worker.
    Worker,
    /// PUs of any other thread.
    Helper,
    /// Policy, priority and nice value of a thread.
    Scheduling,
    /// Weight or quota of a control group.
    ProcessorTime,
    /// Memory that the balloon leaves the guest.
    Balloon,
    /// Limits of a disk or an interface.
    Throttle,
    /// A NUMA cell of the guest: its vCPUs, memory, distances, and the node its pages are on.
    Cell,
    /// A PCI function the guest is given.
    Function,
    /// PUs that interrupts of a device are delivered to.
    Interrupt,
    /// libvirt's qemu hook.
    Hook,
    /// The unit that makes again at boot what a reboot loses.
    BootUnit,
    /// The iothread of a disk's queue.
    Queue,
    /// Node and size of the guest's pages.
    Memory,
    /// Which node's memory the vCPUs touch.
    Touched,
    /// Persistent pages of a pool.
    Pool,
    /// Whether a disk bypasses the host's page cache.
    DiskCache,
    /// How QEMU submits a disk's requests.
    DiskEngine,
    /// Who moves the packets of its interfaces.
    Network,
    /// libvirt's stored definition.
    StoredDefinition,
    /// libvirt's definition in force.
    LiveDefinition,
    /// What the guest sees.
    Guest,
    /// A kernel setting.
    Setting,
    /// A module of the kernel.
    Module,
    /// Virtual functions, or a driver.
    Device,
}

/// How what is compares with what was planned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// As planned.
    Ok,
    /// Something else.
    Mismatch,
    /// It could not be found out.
    CannotTell {
        /// Why, and what would help.
        why: String,
    },
}

impl Check {
    /// A check whose outcome is plain.
    pub(crate) fn compared(
        kind: CheckKind,
        subject: impl Into<String>,
        planned: impl Into<String>,
        found: impl Into<String>,
        equal: bool,
    ) -> Self {
        let outcome = if equal { Outcome::Ok } else { Outcome::Mismatch };
        let (subject, planned) = (subject.into(), planned.into());
        Self { subject, kind, planned, found: Some(found.into()), outcome, place: None }
    }

    /// Whether it is of what a guest gets at its start alone, by what of its plan `waits` for that. Pins, weights, limits and interrupts
    /// are set while it runs, but for those of what is not there yet; and no start brings back a link, a function that the machine has
    /// no more, or pages where they were to stay.
    fn is_of_a_start(&self, waits: &[String]) -> bool {
        let found = self.found.as_deref().unwrap_or_default();
        match self.kind {
            CheckKind::Cell | CheckKind::Memory | CheckKind::Touched => waits.iter().any(|part| is_of_memory(part)),
            CheckKind::Function => functions::is_of_a_start(&self.subject, found, waits),
            CheckKind::Iothread => found == threads::NO_THREAD,
            CheckKind::LiveDefinition => !self.subject.contains(": cputune/") || found == definition::NOT_SET,
            CheckKind::Queue | CheckKind::DiskCache | CheckKind::DiskEngine | CheckKind::Network | CheckKind::Guest => {
                true
            }
            _ => false,
        }
    }

    /// A check that found nothing out.
    pub(crate) fn cannot_tell(
        kind: CheckKind,
        subject: impl Into<String>,
        planned: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        let (subject, planned) = (subject.into(), planned.into());
        Self { subject, kind, planned, found: None, outcome: Outcome::CannotTell { why: why.into() }, place: None }
    }

    /// The same, with the place it was read at.
    pub(crate) fn at(self, place: impl Into<String>) -> Self {
        Self { place: Some(place.into()), ..self }
    }
}

impl Verification {
    /// How many checks found something else than planned.
    pub fn mismatches(&self) -> usize {
        self.checks.iter().filter(|check| check.outcome == Outcome::Mismatch).count()
    }

    /// How many checks found nothing out.
    pub fn untold(&self) -> usize {
        self.checks.iter().filter(|check| matches!(check.outcome, Outcome::CannotTell { .. })).count()
    }

    /// Turns mismatches in what only a restart changes into "waits for the next start": of what `waits` for it, in the words of
    /// [`crate::Part::what`].
    pub fn await_restart(&mut self, waits: &[String]) {
        if waits.is_empty() {
            return;
        }
        for check in &mut self.checks {
            if check.is_of_a_start(waits) && check.outcome == Outcome::Mismatch {
                check.outcome = Outcome::CannotTell { why: NEXT_START.to_owned() };
            }
        }
    }

    /// How many checks wait for the guest's next start.
    pub fn waiting(&self) -> usize {
        let waits =
            |check: &&Check| matches!(&check.outcome, Outcome::CannotTell { why } if why.as_str() == NEXT_START);
        self.checks.iter().filter(waits).count()
    }
}

/// Why what waits for a start is not told.
const NEXT_START: &str = "takes effect at the guest's next start";
