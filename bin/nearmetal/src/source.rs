//! Which machine a command looks at: this one, a capture, or another one.

use std::path::PathBuf;

use nearmetal_host::HostFs;
use nearmetal_hypervisor::Libvirt;

use crate::remote;

/// The machine to look at, instead of this one.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct SourceArgs {
    /// Read a captured machine: a file from `nearmetal capture`, a directory that holds `sys` and `proc`, an hwloc capture
    /// (tar, also gz, bz2, xz, zst) or hwloc XML (`lstopo --of xml`)
    #[arg(long, value_name = "PATH")]
    pub(crate) capture: Option<PathBuf>,
    /// Read another machine: NAME or USER@NAME over ssh, or a libvirt URI (qemu+ssh://NAME/system) for hosts without a
    /// shell. Over ssh, nearmetal copies a small static program there, runs it and removes it
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
}

/// A machine, and what its source cannot say of it.
pub(crate) struct Source {
    /// Its files.
    pub(crate) fs: HostFs,
    /// What is unknown whatever the machine is, in words.
    pub(crate) unknown: Option<String>,
    /// The libvirt that knows its domains; `None` for a machine whose libvirt cannot be asked.
    pub(crate) libvirt: Option<Libvirt>,
}

impl SourceArgs {
    /// Opens the source; `ssh` is the program that reaches other machines, with its options.
    ///
    /// # Errors
    /// In words for the user: nothing there, damaged, or not to be reached.
    pub(crate) fn open(&self, ssh: &str) -> anyhow::Result<Source> {
        let known = |fs| Source { fs, unknown: None, libvirt: None };
        match (&self.capture, &self.host) {
            (Some(path), _) => Ok(known(nearmetal_capture::open(path)?)),
            (None, Some(uri)) if uri.contains("://") => {
                let host = remote::over_libvirt(uri)?;
                Ok(Source { fs: host.fs, unknown: Some(host.unknown), libvirt: Some(host.libvirt) })
            }
            (None, Some(name)) => Ok(known(remote::over_ssh(name, ssh)?)),
            (None, None) => Ok(known(HostFs::live())),
        }
    }
}
