//! What a measurement in clones may do, and what it boots.

use std::path::{Path, PathBuf};

use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_measure::{Conditions, Environment};

use crate::installed::beside_this_program;

/// Where libvirt keeps kernels that guests boot, and what its packages and virt-install use; QEMU's user may enter it.
const OF_LIBVIRT: &str = "/var/lib/libvirt/boot";

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

/// A directory of nearmetal's own in libvirt's; none where there is no libvirt's.
fn guest_files(of_libvirt: &Path) -> PathBuf {
    if of_libvirt.is_dir() { of_libvirt.join("nearmetal") } else { PathBuf::new() }
}

/// The conditions of what measures nothing and boots nothing.
pub(super) fn none(seed: u64, fs: &HostFs, journal: &Journal) -> Conditions {
    Conditions {
        seed,
        appliance: PathBuf::new(),
        probe: PathBuf::new(),
        state: journal.state_directory().to_owned(),
        guest_files: guest_files(Path::new(OF_LIBVIRT)),
        environment: Environment::detect(fs),
        pause: false,
        store: None,
        plan: None,
        resume: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clones_boot_goes_where_libvirt_keeps_such_files() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(guest_files(directory.path()), directory.path().join("nearmetal"));
        assert_eq!(guest_files(&directory.path().join("absent")), PathBuf::new());
    }
}
