//! A running lab.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::boot;
use crate::error::LabError;
use crate::exec::{self, Command, ExecOutput};
use crate::identity::LabName;
use crate::image::{Layer, Release, With};
use crate::launch::Process;
use crate::machine::{Cable, Count};
use crate::places::Places;
use crate::progress::Progress;
use crate::record::{BootTimes, Record};

/// How to boot a lab.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// Its name.
    pub name: LabName,
    /// An embedded machine, or the path of a machine file.
    pub machine: String,
    /// Whether the disks outlive it.
    pub keep: bool,
    /// Kernel arguments after those of the machine.
    pub append: Vec<String>,
    /// A cable for its first network card, whose other end another lab on this host has.
    pub cable: Option<Cable>,
    /// What its processors count; `None`: what its machine says.
    pub count: Option<Count>,
    /// Whether it has the loads image, as a disk that can only be read and has the serial number `loads`, or `loads-postgresql`.
    pub loads: bool,
    /// What that image has beside the programs that every one has.
    pub loads_with: Option<With>,
    /// Whose packages are laid over its operating system.
    pub layer: Option<Layer>,
    /// Debian's release.
    pub release: Release,
    /// How long it may take from QEMU's start until libvirt answers.
    pub timeout: Duration,
}

impl UpOptions {
    /// The embedded machine `quad` with disks that are thrown away, and five minutes.
    pub fn new(name: LabName) -> Self {
        let timeout = Duration::from_secs(300);
        Self {
            name,
            machine: "quad".to_owned(),
            keep: false,
            append: Vec::new(),
            cable: None,
            count: None,
            loads: false,
            loads_with: None,
            layer: None,
            release: Release::default(),
            timeout,
        }
    }
}

/// A lab that runs. Dropping it leaves it running.
#[derive(Debug)]
pub struct Lab {
    pub(crate) places: Places,
    pub(crate) state: PathBuf,
    pub(crate) record: Record,
    /// Replaced when a lab that stalls while it reboots is started again.
    pub(crate) process: Mutex<Process>,
}

impl Lab {
    /// Boots a lab and waits until libvirt answers. The image is built first if it is missing, and what killed labs
    /// left behind is swept.
    ///
    /// # Errors
    /// A wrong machine, a name in use, no room, or a lab that does not come up; then nothing of it remains.
    pub fn up(places: &Places, options: &UpOptions, progress: &mut dyn Progress) -> Result<Self, LabError> {
        boot::up(places, options, progress)
    }

    /// A lab that is up.
    ///
    /// # Errors
    /// It is not.
    pub fn open(places: &Places, name: &LabName) -> Result<Self, LabError> {
        let state = places.state(name);
        let running = Process::recorded(&state).filter(|process| process.is_alive());
        match (Record::read(&state), running) {
            (Some(record), Some(process)) => {
                Ok(Self { places: places.clone(), state, record, process: Mutex::new(process) })
            }
            _ => Err(LabError::NotUp { name: name.to_string() }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &LabName {
        &self.record.name
    }

    /// Process of its QEMU.
    pub fn pid(&self) -> u32 {
        self.process().pid
    }

    /// Whether its QEMU runs.
    pub fn is_alive(&self) -> bool {
        self.process().is_alive()
    }

    /// Whether its disks outlive it.
    pub fn keeps_disks(&self) -> bool {
        self.record.keep
    }

    /// How long it took to boot.
    pub fn boot_times(&self) -> Option<BootTimes> {
        self.record.boot
    }

    /// Port on 127.0.0.1 that leads to its SSH server.
    pub fn ssh_port(&self) -> u16 {
        self.record.ssh_port
    }

    /// A section of ssh_config(5) by which `ssh -F FILE NAME` gets in, NAME being the lab's.
    pub fn ssh_config(&self) -> String {
        crate::ssh::config(&self.state, self.record.ssh_port, &self.name().to_string())
    }

    pub(crate) fn process(&self) -> Process {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_process(&self, process: Process) {
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = process;
    }

    /// Sockets, keys and logs.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// Runs a command and collects what it says.
    ///
    /// # Errors
    /// It ran into its limit, or the connection broke. An exit code other than 0 is no error.
    pub fn exec(&self, command: &Command) -> Result<ExecOutput, LabError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let status = exec::run(self, command, &mut stdout, &mut stderr)?;
        Ok(ExecOutput { status, stdout, stderr })
    }

    /// Runs a command and hands on what it says as it comes; gives its exit code.
    ///
    /// # Errors
    /// It ran into its limit, or the connection broke.
    pub fn exec_streaming(
        &self,
        command: &Command,
        stdout: &mut (dyn Write + Send),
        stderr: &mut (dyn Write + Send),
    ) -> Result<i32, LabError> {
        exec::run(self, command, stdout, stderr)
    }
}
