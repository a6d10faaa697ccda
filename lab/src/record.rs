//! What is written down about a lab: while it runs, in its state directory; beside its disks while those are kept.

use std::path::Path;

use nearmetal_host::files;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::identity::LabName;
use crate::image::{Layer, Release, With};
use crate::machine::{Cable, Count, Extra, Machine, MachineError};

/// A running lab, as recorded before its QEMU starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Its name.
    pub name: LabName,
    /// Random identity of its QEMU.
    pub token: String,
    /// Machine, as asked for.
    pub machine: String,
    /// Hash of its image.
    pub image: String,
    /// Port on 127.0.0.1.
    pub ssh_port: u16,
    /// Whether its disks are kept.
    pub keep: bool,
    /// The user's kernel arguments.
    pub append: Vec<String>,
    /// The cable in its first network card, if it was given one beside its machine's.
    #[serde(default)]
    pub cable: Option<Cable>,
    /// What its processors count, if it was told beside its machine.
    #[serde(default)]
    pub count: Option<Count>,
    /// Whether it has the loads image.
    #[serde(default)]
    pub loads: bool,
    /// What that has beside.
    #[serde(default)]
    pub loads_with: Option<With>,
    /// Whose packages are laid over its operating system.
    #[serde(default)]
    pub layer: Option<Layer>,
    /// How long it took to boot, once it has.
    pub boot: Option<BootTimes>,
}

/// Seconds from the start of `up` (the image was there) until something answered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BootTimes {
    /// Until commands could be run.
    pub ssh_seconds: f64,
    /// Until libvirt answered.
    pub libvirt_seconds: f64,
    /// Processor seconds of QEMU until then, which other work on the host disturbs less.
    pub processor_seconds: f64,
}

// Two records are equal when their texts are; NaN never gets in.
impl Eq for BootTimes {}

const FILE: &str = "lab.json";

impl Record {
    /// Images that it has beside its disks.
    pub(crate) fn extras(&self) -> Vec<Extra> {
        let loads = self.loads.then_some(Extra::Loads(self.loads_with));
        loads.into_iter().chain(self.layer.map(|_| Extra::Layer)).collect()
    }

    /// Its machine, with what it was given beside.
    ///
    /// # Errors
    /// The machine's file has changed or gone.
    pub(crate) fn machine(&self) -> Result<Machine, MachineError> {
        Machine::load_with(&self.machine, self.cable.as_ref(), self.count)
    }

    /// The record in a state directory, if there is a readable one.
    pub(crate) fn read(state: &Path) -> Option<Self> {
        serde_json::from_str(&files::read_to_string(&state.join(FILE)).ok()?).ok()
    }

    /// Writes the record.
    pub(crate) fn write(&self, state: &Path) -> Result<(), LabError> {
        write(&state.join(FILE), self)
    }
}

/// What kept disks were made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskRecord {
    /// Hash of the image their changes are relative to.
    pub image: String,
    /// Machine, as asked for.
    pub machine: String,
    /// Debian's release.
    #[serde(default)]
    pub release: Release,
}

impl DiskRecord {
    /// The record beside the disks, if there is a readable one.
    pub(crate) fn read(disks: &Path) -> Option<Self> {
        serde_json::from_str(&files::read_to_string(&disks.join(FILE)).ok()?).ok()
    }

    /// Writes the record.
    pub(crate) fn write(&self, disks: &Path) -> Result<(), LabError> {
        write(&disks.join(FILE), self)
    }
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), LabError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| files::FileError {
        action: "write",
        path: path.to_owned(),
        source: error.into(),
    })?;
    Ok(files::write_atomic(path, text)?)
}

/// What is known of one lab.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LabStatus {
    /// Its name.
    pub name: LabName,
    /// Whether it runs.
    pub state: LabState,
    /// Machine, as asked for.
    pub machine: Option<String>,
    /// Hash of its image.
    pub image: Option<String>,
    /// Process of its QEMU.
    pub pid: Option<u32>,
    /// Port on 127.0.0.1 that leads to its SSH server.
    pub ssh_port: Option<u16>,
    /// Whether its disks are kept.
    pub keep: bool,
    /// What its processors count; `None`: nothing.
    pub count: Option<Count>,
    /// The user's kernel arguments.
    pub append: Vec<String>,
    /// How long it took to boot.
    pub boot: Option<BootTimes>,
    /// Bytes its disks take on the host.
    pub disk_bytes: u64,
}

/// Whether a lab runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LabState {
    /// Started, and libvirt has not answered yet.
    Booting,
    /// Up.
    Up,
    /// Its QEMU is gone; the next `up` of any lab sweeps what it left.
    Dead,
    /// Not running; its disks are kept.
    Kept,
}
