//! The records of a journal: one JSON object a line, appended and synced, never changed.

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::devices::DeviceTask;
use crate::fix::CureList;
use crate::plan_file::{HostIdentity, PlanFile};

/// The schema this version reads and writes.
pub const JOURNAL_SCHEMA: &str = "nearmetal.journal/1";

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Record {
    /// The first line: which transaction this is.
    Header(Box<Header>),
    /// A change is about to be made. On the disk before the change is.
    Intent {
        /// Number of the change, from 1.
        step: u32,
        /// The change, with the old value.
        change: Change,
    },
    /// A change that cannot be taken back at once has begun: the guest has been asked to shut down.
    Begun {
        /// Number of the change.
        step: u32,
    },
    /// The change was made and read back.
    Done {
        /// Number of the change.
        step: u32,
        /// For a definition: what libvirt made of it. Tells later whether someone has edited it since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<String>,
        /// For a new domain: whether the file its UEFI variables will be in was not there yet. Only then it goes with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        fresh_nvram: bool,
    },
    /// A change that the reboot undid is about to be made again in a later boot.
    Reapplying {
        /// Number of the change.
        step: u32,
        /// The boot in which it is in force again.
        boot_id: String,
        /// The value that this boot began with.
        old: String,
    },
    /// All changes were made.
    Committed {
        /// When.
        at: String,
        /// How many checks of the read-back found something else than planned.
        mismatches: usize,
    },
    /// Taking back has begun.
    RollbackStarted {
        /// When.
        at: String,
        /// The boot in which it did.
        boot_id: String,
        /// The guests that are to run when it ends.
        running: Vec<String>,
        /// Whether guests that run with what is undone are left running.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keep_running: bool,
    },
    /// A change was taken back, or needed no taking back.
    Undone {
        /// Number of the change.
        step: u32,
        /// What was found and done.
        note: String,
    },
    /// The former state is restored.
    RolledBack {
        /// When.
        at: String,
    },
    /// The user decided to leave an unfinished transaction as it is.
    Forgotten {
        /// When.
        at: String,
    },
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`JOURNAL_SCHEMA`].
    pub schema: String,
    /// Number of the transaction, from 1.
    pub transaction: u32,
    /// When it began.
    pub started: String,
    /// The boot in which it began.
    pub boot_id: String,
    /// The version of nearmetal.
    pub nearmetal: String,
    /// The machine.
    pub host: HostIdentity,
    /// What was to be done.
    #[serde(flatten)]
    pub purpose: Purpose,
}

/// What a transaction is for. In the file it is one more field of the header: `plan`, `cures` or `devices`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// A plan put in force.
    Plan(Box<PlanFile>),
    /// Findings of the rules cured.
    Cures(CureList),
    /// Virtual functions and drivers of devices.
    Devices(DeviceTask),
}

impl Purpose {
    /// The plan, if it is one.
    pub fn plan(&self) -> Option<&PlanFile> {
        match self {
            Self::Plan(plan) => Some(plan),
            Self::Cures(_) | Self::Devices(_) => None,
        }
    }

    /// The cures, if it is these.
    pub fn cures(&self) -> Option<&CureList> {
        match self {
            Self::Plan(_) | Self::Devices(_) => None,
            Self::Cures(cures) => Some(cures),
        }
    }

    /// What was asked for, if it is of devices.
    pub fn devices(&self) -> Option<&DeviceTask> {
        match self {
            Self::Plan(_) | Self::Cures(_) => None,
            Self::Devices(task) => Some(task),
        }
    }
}
