//! A libvirt of the run's own, for users without root: started by the run in its control group, so that QEMU is born there and
//! charged to the job, and gone with the run.
//!
//! It is private because libvirt's usual session daemon outlives the job that started it, and would serve the next job of the same
//! user from the control group of the first. Who ends what: the connection that the guest is tied to ends the guest when the
//! helper dies (autodestroy), and the daemon ends [by itself](daemon) when nobody is connected any more; a daemon that is
//! killed leaves QEMU, which the run then ends by its process. What is left when all of them are killed at once is a QEMU without a
//! master, and a [directory]: the next run of the user ends the one and removes the other.

mod daemon;
mod directory;

use std::path::{Path, PathBuf};

use nearmetal_host::HostFs;
use nearmetal_units::Bytes;

use crate::RunError;
use crate::qemu_log::QemuLog;

pub use daemon::{Daemon, find_program};
pub use directory::{BASE, Directory, sweep};

/// What QEMU, libvirt's daemon, its helper and nearmetal take of a job's memory beside the guest's own. Some 140 MiB were seen before
/// a guest had booted (docs/decisions/0013-run.md); QEMU takes buffers for what its guest writes.
pub const BESIDE: Bytes = Bytes::from_mib(256);

/// A run's own libvirt.
#[derive(Debug)]
pub struct Session {
    daemon: Daemon,
    directory: Directory,
}

impl Session {
    /// Starts it in its directory, unless the run is told to end by a signal with this number meanwhile.
    ///
    /// # Errors
    /// libvirt's daemon is not installed, or does not come up; its own words are in the message. [`RunError::Interrupted`].
    pub fn start(
        directory: Directory,
        program: &Path,
        interrupted: &mut dyn FnMut() -> Option<i32>,
    ) -> Result<Self, RunError> {
        directory.configure()?;
        let daemon = Daemon::start(directory.path(), program, interrupted)?;
        Ok(Self { daemon, directory })
    }

    /// By which URI it is reached: its socket alone, so that no other daemon is started in its place.
    pub fn uri(&self) -> String {
        format!("qemu+unix:///session?socket={}", self.daemon.socket().display())
    }

    /// Ends the daemon and removes the directory. The guest is ended before: QEMU would outlive both.
    ///
    /// # Errors
    /// The directory cannot be removed; the next run of this user tries again.
    pub fn end(mut self) -> Result<(), RunError> {
        self.daemon.end();
        self.directory.remove()
    }
}

/// What a run's QEMU says, in the directory of its session.
pub fn log(directory: &Path, name: &str) -> QemuLog {
    QemuLog::Goes(directory.join(format!("cache/libvirt/qemu/log/{name}.log")))
}

/// The daemon's program.
///
/// # Errors
/// There is none.
pub fn program() -> Result<PathBuf, RunError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_program(&path).ok_or_else(|| {
        RunError::Session(
            "neither `virtqemud` nor `libvirtd` is installed; on Debian: `apt install libvirt-daemon`".to_owned(),
        )
    })
}

/// Ends processes that were started for a directory of a dead run. They have it in their environment, which only their own user
/// and root can read, and no other process has.
fn end_of_directory(fs: &HostFs, directory: &Path) -> Result<(), String> {
    let mark = format!("{}={}", daemon::RUNTIME, daemon::runtime(directory).display());
    let find = || {
        let numbers = fs.list("/proc").map_err(|error| error.to_string())?;
        let numbers = numbers.iter().filter_map(|name| name.parse::<u32>().ok());
        let mut with_mark = numbers.filter(|number| {
            let environment = fs.read_bytes(&format!("/proc/{number}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        });
        Ok::<_, String>(with_mark.next())
    };
    // Each by itself, as often as there is one: a bound, should one not be ended.
    for _ in 0..64 {
        if crate::process::end(&find)?.is_none() {
            return Ok(());
        }
    }
    Err("its processes do not end".to_owned())
}

#[cfg(test)]
mod tests;
