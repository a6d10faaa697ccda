//! What a measurement in clones may do, and what it boots.

use std::path::PathBuf;

use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_measure::{Conditions, Stop, environment_of};

use crate::guest_files;
use crate::installed::beside_this_program;

/// What all measurements in clones take.
#[derive(Debug, clap::Args)]
pub(super) struct CloneArgs {
    /// Allow the VM itself to be paused while its slice is measured
    #[arg(long)]
    pause: bool,
    /// Directory of the measuring appliance (vmlinuz, initramfs.cpio.gz)
    #[arg(long, value_name = "DIR", default_value = "/usr/share/nearmetal/appliance")]
    appliance: PathBuf,
}

impl CloneArgs {
    /// What a measurement is made under.
    ///
    /// # Errors
    /// The probe is not installed.
    pub(super) fn conditions(&self, seed: u64, fs: &HostFs, journal: &Journal) -> anyhow::Result<Conditions> {
        Ok(Conditions {
            appliance: self.appliance.clone(),
            probe: beside_this_program("nearmetal-probe")?,
            pause: self.pause,
            ..none(seed, fs, journal)
        })
    }
}

/// The conditions of what measures nothing and boots nothing.
pub(super) fn none(seed: u64, fs: &HostFs, journal: &Journal) -> Conditions {
    Conditions {
        seed,
        appliance: PathBuf::new(),
        probe: PathBuf::new(),
        state: journal.state_directory().to_owned(),
        guest_files: guest_files::directory().unwrap_or_default(),
        environment: environment_of(fs),
        loads: None,
        kit: None,
        pause: false,
        store: None,
        plan: None,
        resume: None,
        stop: Stop::default(),
    }
}
