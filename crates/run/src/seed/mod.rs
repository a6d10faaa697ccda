//! What cloud-init is told: a small disk with the label CIDATA (NoCloud), in a file that never has a name.
//!
//! `mformat` and `mcopy` (mtools) make it, without mounting anything. Like the [delta](crate::delta) it is a file without a
//! name that they reach through /proc/PID/fd, so nothing is left of it, whoever is killed; libvirt gets it open. What the user
//! gave is read once, into memory, and goes on in a file of memory: no argument of a program holds a name of the user's.

mod meta_data;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nearmetal_domain::DomainXml;
use nearmetal_host::files;
use nearmetal_units::Bytes;
use rustix::fs::MemfdFlags;

use crate::RunError;
use crate::delta::{path_of, unnamed};

/// A file of the user's at most. Clouds pass on 16 to 64 KiB.
pub(crate) const MOST: Bytes = Bytes::from_mib(1);
/// The disk: both files, and room for the file system.
const SIZE: Bytes = Bytes::from_mib(4);
const SECTOR: u64 = 512;
/// Its label, by which cloud-init finds it.
const LABEL: &str = "CIDATA";
/// What it is called in messages.
pub const WHAT: &str = "the disk with the user data";

/// What the user gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserData {
    user_data: Vec<u8>,
    /// Its file, for messages, and what is in it.
    meta_data: Option<(PathBuf, Vec<u8>)>,
}

impl UserData {
    /// Reads the user's files.
    ///
    /// # Errors
    /// One of them cannot be read, is longer than 1 MiB, or holds meta-data that an `instance-id` cannot be set ahead of.
    pub fn read(user_data: &Path, meta_data: Option<&Path>) -> Result<Self, RunError> {
        let most = usize::try_from(MOST.get()).unwrap_or(usize::MAX);
        let read = |path: &Path| files::read_up_to(path, most);
        let meta_data = meta_data.map(|path| Ok::<_, RunError>((path.to_owned(), read(path)?))).transpose()?;
        Self::of(read(user_data)?, meta_data)
    }

    /// Of what was read, with the name of the second file.
    ///
    /// # Errors
    /// The meta-data are such that an `instance-id` cannot be set ahead of them.
    pub fn of(user_data: Vec<u8>, meta_data: Option<(PathBuf, Vec<u8>)>) -> Result<Self, RunError> {
        let this = Self { user_data, meta_data };
        // Its words do not depend on who runs: they are told before anything is made.
        this.meta_data("run", "uuid")?;
        Ok(this)
    }

    /// The user data, and the meta-data with the name of their file.
    pub fn parts(&self) -> (&[u8], Option<(&Path, &[u8])>) {
        (&self.user_data, self.meta_data.as_ref().map(|(path, text)| (path.as_path(), text.as_slice())))
    }

    fn meta_data(&self, name: &str, uuid: &str) -> Result<String, RunError> {
        let users = self.meta_data.as_ref();
        meta_data::with_instance(name, uuid, users.map(|(_, text)| text.as_slice())).map_err(|reason| {
            RunError::MetaData { path: users.map(|(path, _)| path.clone()).unwrap_or_default(), reason }
        })
    }
}

/// Makes the disk for the run of this name and UUID, in a directory's file system.
///
/// # Errors
/// The file system makes no files without names, or mtools is missing or refuses.
pub fn make(directory: &Path, data: &UserData, name: &str, uuid: &str) -> Result<File, RunError> {
    let failed = |reason: String| RunError::Disk { what: WHAT, directory: directory.to_owned(), reason };
    let meta_data = data.meta_data(name, uuid)?;
    let image = unnamed(directory, WHAT)?;
    let io = |error: std::io::Error| failed(error.to_string());
    image.set_len(SIZE.get()).map_err(io)?;
    let own = path_of(&image);
    let sectors = (SIZE.get() / SECTOR).to_string();
    mtools("mformat", &["-i", &own, "-T", &sectors, "-v", LABEL, "::"]).map_err(failed)?;
    for (content, target) in [(data.user_data.as_slice(), "::user-data"), (meta_data.as_bytes(), "::meta-data")] {
        let file = rustix::fs::memfd_create("nearmetal-seed", MemfdFlags::CLOEXEC).map_err(|errno| io(errno.into()))?;
        let mut file = File::from(file);
        file.write_all(content).map_err(io)?;
        mtools("mcopy", &["-i", &own, &path_of(&file), target]).map_err(failed)?;
    }
    Ok(image)
}

/// Runs a program of mtools, which nobody's settings reach but those of /etc/mtools.conf.
fn mtools(program: &'static str, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .env("MTOOLSRC", "/dev/null")
        .env("HOME", "/dev/null")
        .stdin(Stdio::null());
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    let output = command.output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("`{program}` is missing: apt install mtools"),
        _ => format!("`{program}`: {error}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{program}` ended with {}: {}", output.status, said.trim()))
}

/// Looks for the disk in the definition of a guest that runs. `target`: its name there.
///
/// # Errors
/// It is missing, or the guest may write to it.
pub fn in_definition(live: &str, target: &str) -> Result<(), String> {
    let differs = |found: &str| format!("{WHAT} ({target}): planned a disk to read from, found {found}");
    let facts = DomainXml::parse(live).and_then(|live| live.facts()).map_err(|error| differs(&error.to_string()))?;
    match facts.disks.iter().find(|disk| disk.target == target) {
        None => Err(differs("no such disk")),
        Some(disk) if !disk.readonly => Err(differs("one that the guest may write to")),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
