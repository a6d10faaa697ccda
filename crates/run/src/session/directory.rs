//! A session's directory: sockets, settings and logs of its daemon, for one user and one run.
//!
//! It lies in /tmp, since a socket's path has 107 characters at most (unix(7)) and a batch system's scratch directories are
//! longer. The run holds it by flock(2); one that nobody holds is what a run left that was killed. systemd-tmpfiles spares what is
//! held, however old it is (tmpfiles.d(5)).

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nearmetal_host::{HostFs, files};
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;

use super::{daemon, end_of_directory};
use crate::RunError;

/// Where sessions' directories are.
pub const BASE: &str = "/tmp";
const PREFIX: &str = "nearmetal-";
/// Digits of the run's UUID in its name.
const DIGITS: usize = 8;
/// The longest path of a socket, without its zero byte (sun_path, unix(7)).
const LONGEST_SOCKET: usize = 107;
/// The longest of a daemon's: the agent's, in libvirt 9.0, with a domain's short name of 20 characters.
const LONGEST_BELOW: &str = "libvirt/qemu/channel/target/domain-1-12345678901234567890/org.qemu.guest_agent.0";

/// What libvirt's QEMU driver is told.
const QEMU_SETTINGS: &str = "\
# A batch system may have lowered the limit, and libvirt would fail to raise it.
max_core = 0
# No virtlogd: it would be one more daemon that outlives the run.
stdio_handler = \"file\"
# Confining QEMU, and changing who owns files, takes root.
security_driver = \"none\"
remember_owner = 0
# Without root libvirt sets no control group. Told that it may, it leaves the memory policy to them, and sets none.
cgroup_controllers = []
";

/// A session's directory, held.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    is_removed: bool,
    _lock: File,
}

impl Directory {
    /// Makes it for the run with this UUID. The caller has the turn: between making and holding it, nobody [sweeps](sweep).
    ///
    /// # Errors
    /// It cannot be made, it is there, or its path is too long for sockets.
    pub fn make(base: &Path, uuid: &str) -> Result<Self, RunError> {
        let digits: String = uuid.chars().take(DIGITS).collect();
        let path = base.join(format!("{PREFIX}{digits}"));
        let longest = path.join(LONGEST_BELOW).as_os_str().len();
        if longest > LONGEST_SOCKET {
            let path = path.display();
            return Err(RunError::Session(format!(
                "sockets below `{path}` would have paths of {longest} characters, and {LONGEST_SOCKET} is the limit"
            )));
        }
        let failed = |error: std::io::Error| RunError::Session(format!("cannot make `{}`: {error}", path.display()));
        // Whatever the umask takes away, nobody else gets in.
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let lock = open(&path).map_err(|errno| failed(errno.into()))?;
        match files::try_lock(&lock, &path)? {
            true => Ok(Self { path, is_removed: false, _lock: lock }),
            false => Err(RunError::Session(format!("somebody else holds `{}`", path.display()))),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the daemon's settings.
    pub(super) fn configure(&self) -> Result<(), RunError> {
        for below in ["libvirt", "cache"] {
            files::create_dir_all(&self.path.join(below))?;
        }
        // Open to this user alone, as libvirt wants it (XDG base directory specification).
        DirBuilder::new()
            .mode(0o700)
            .create(daemon::runtime(&self.path))
            .map_err(|error| RunError::Session(format!("cannot make its directory: {error}")))?;
        Ok(files::write(&self.path.join("libvirt/qemu.conf"), QEMU_SETTINGS)?)
    }

    /// Removes it with all that is in it.
    pub(super) fn remove(mut self) -> Result<(), RunError> {
        self.is_removed = true;
        Ok(files::remove_dir_all(&self.path)?)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.is_removed {
            let _ = files::remove_dir_all(&self.path);
        }
    }
}

/// Opens a directory, and nothing else.
fn open(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

/// Removes what runs of this user left that were killed, and ends daemons that still run there. Their guests are gone. The caller
/// has the turn.
///
/// Gives what could not be removed, in words.
pub fn sweep(fs: &HostFs, base: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for path in files::list(base).unwrap_or_default() {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
        if !name.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            continue;
        }
        // Another user's is closed, or a link.
        let Ok(held) = open(&path) else { continue };
        let own = held.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw() && found.mode() & 0o777 == 0o700);
        if !own || !files::try_lock(&held, &path).unwrap_or(false) {
            continue;
        }
        let ended =
            end_of_directory(fs, &path).map_err(|why| format!("cannot end the daemon of `{}`: {why}", path.display()));
        let removed =
            ended.and_then(|()| files::remove_dir_all(&path).map_err(|error| format!("{error}: {}", error.source)));
        problems.extend(removed.err());
    }
    problems
}
