//! What every measurement is made under.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nearmetal_host::files::{self, FileError};
use nearmetal_host::{HostFs, LAB_VENDOR};
use nearmetal_results::Environment;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;

/// The wish that measuring ends, from another thread: a signal's, say. What runs comes to its end, then everything that was
/// borrowed is given back. All clones of it are the same wish.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), MeasureError> {
        if self.is_asked() { Err(MeasureError::Stopped) } else { Ok(()) }
    }
}

impl PartialEq for Stop {
    /// Who may end a measurement does not make it another.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Lab or silicon, by the vendor in the firmware's tables (DMI), which guests of any kind cannot mistake.
pub fn environment_of(fs: &HostFs) -> Environment {
    let field = |name: &str| fs.read(&format!("/sys/class/dmi/id/{name}")).map(|text| text.trim().to_owned());
    match (field("sys_vendor"), field("product_name")) {
        (Ok(vendor), Ok(machine)) if vendor == LAB_VENDOR => Environment::Lab { machine },
        _ => Environment::Silicon,
    }
}

/// Where a measurement finds what it needs, what it may do, and where it is written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Seed of order, workloads and bootstrap.
    pub seed: u64,
    /// Directory of the appliance.
    pub appliance: PathBuf,
    /// The probe, a static program.
    pub probe: PathBuf,
    /// State directory, for the record of what must be put back.
    pub state: PathBuf,
    /// Lab or silicon.
    pub environment: Environment,
    /// Directory for what clones boot, which QEMU's user must be able to enter; empty for `bench` in the state directory, which
    /// others may not enter.
    #[serde(default)]
    pub guest_files: PathBuf,
    /// The loads image on the host, a block device or a file, where a load is one of its programs. Clones have it as a disk.
    #[serde(default)]
    pub loads: Option<PathBuf>,
    /// The image of the user's licensed kit on the host, where a load runs one. Clones have it as a disk.
    #[serde(default)]
    pub kit: Option<PathBuf>,
    /// Whether the user allows running originals to be paused.
    pub pause: bool,
    /// The store that every run goes into as it ends; `None`: none.
    pub store: Option<PathBuf>,
    /// The plan that is measured, as history shows it: when it was made.
    pub plan: Option<String>,
    /// The number of an interrupted measurement in the store, to go on with.
    #[serde(skip)]
    pub resume: Option<i64>,
    /// Who may end it.
    #[serde(skip)]
    pub stop: Stop,
}

impl Conditions {
    /// The directory for what clones boot, made if it is not there. Whoever is not its owner may enter and not list it.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn place_for_guest_files(&self) -> Result<PathBuf, MeasureError> {
        let path = match self.guest_files.as_os_str().is_empty() {
            true => self.state.join("bench"),
            false => self.guest_files.clone(),
        };
        files::create_dir_all(&path)?;
        // Whatever the umask: a hardened host's closes new directories to all others.
        let failed = |source: rustix::io::Errno| FileError {
            action: "set the permissions of",
            path: path.clone(),
            source: source.into(),
        };
        rustix::fs::chmod(&path, Mode::from_raw_mode(0o711)).map_err(failed)?;
        Ok(path)
    }
}
