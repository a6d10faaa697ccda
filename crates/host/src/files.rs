//! Files that are nearmetal's own (state, caches, reports): `std::fs` with the path in every error.
//!
//! The kernel's trees are refused here: they are read through [`crate::HostFs`], so that a capture can stand in for them.
#![allow(clippy::disallowed_methods, reason = "this module is the wrapper the lint points to")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// What failed, on which path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{}`", path.display())]
pub struct FileError {
    /// The verb of the failed call: `read`, `write`, …
    pub action: &'static str,
    /// The path as given.
    pub path: PathBuf,
    /// The system's own answer.
    #[source]
    pub source: io::Error,
}

fn checked<T>(action: &'static str, path: &Path, call: impl FnOnce() -> io::Result<T>) -> Result<T, FileError> {
    let kernel = path.starts_with("/sys") || path.starts_with("/proc");
    let result = if kernel {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "kernel files are read through HostFs"))
    } else {
        call()
    };
    result.map_err(|source| FileError { action, path: path.to_owned(), source })
}

/// The whole file as text.
pub fn read_to_string(path: &Path) -> Result<String, FileError> {
    checked("read", path, || fs::read_to_string(path))
}

/// As [`read_to_string`]; a file that is longer than `most` bytes is refused before it fills the memory.
pub fn read_to_string_up_to(path: &Path, most: usize) -> Result<String, FileError> {
    checked("read", path, || {
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(fs::File::open(path)?, most as u64 + 1), &mut text)?;
        no_longer(text.len(), most).map(|()| text)
    })
}

/// As [`read_to_string_up_to`], as bytes.
pub fn read_up_to(path: &Path, most: usize) -> Result<Vec<u8>, FileError> {
    checked("read", path, || {
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(fs::File::open(path)?, most as u64 + 1), &mut bytes)?;
        no_longer(bytes.len(), most).map(|()| bytes)
    })
}

fn no_longer(length: usize, most: usize) -> io::Result<()> {
    if length <= most {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, format!("longer than {most} bytes")))
}

/// Length, kind and times of what is there, links followed.
pub fn metadata(path: &Path) -> Result<fs::Metadata, FileError> {
    checked("look at", path, || fs::metadata(path))
}

/// The whole file as bytes.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    checked("read", path, || fs::read(path))
}

/// Takes an open file or directory for this process (flock(2)); whether nobody else had it. The kernel gives it back when
/// the last copy of `file` is closed, however the process ends.
///
/// # Errors
/// The file system cannot lock.
pub fn try_lock(file: &fs::File, path: &Path) -> Result<bool, FileError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        other => locked(other, path).map(|()| true),
    }
}

/// As [`try_lock`], and waits until nobody else has it.
///
/// # Errors
/// The file system cannot lock.
pub fn lock(file: &fs::File, path: &Path) -> Result<(), FileError> {
    locked(flock(file, FlockOperation::LockExclusive), path)
}

fn locked(result: rustix::io::Result<()>, path: &Path) -> Result<(), FileError> {
    checked("lock", path, || result.map_err(io::Error::from))
}

/// Writes a file, replacing what was there.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), FileError> {
    checked("write", path, || fs::write(path, contents))
}

/// Writes beside the target, syncs, renames: after a crash the old or the new text is there, never half of one. Two processes
/// that write the same file do not write into each other's. A link in the place of the file beside it is not followed: somebody else
/// may have put it there. A terminal, a pipe or a device is written to, and stays what it is.
pub fn write_atomic(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), FileError> {
    checked("write", path, || {
        if path.metadata().is_ok_and(|about| !about.is_file() && !about.is_dir()) {
            let mut there = fs::OpenOptions::new().write(true).open(path)?;
            return io::Write::write_all(&mut there, contents.as_ref());
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let mut file = match fs::File::create_new(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&temporary)?;
                fs::File::create_new(&temporary)?
            }
            created => created?,
        };
        let written = io::Write::write_all(&mut file, contents.as_ref()).and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| fs::rename(&temporary, path)) {
            // The error that counts is the first.
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::File::open(parent)?.sync_all()?;
        }
        Ok(())
    })
}

/// Opens for reading.
pub fn open(path: &Path) -> Result<fs::File, FileError> {
    checked("open", path, || fs::File::open(path))
}

/// Creates or truncates for writing.
pub fn create(path: &Path) -> Result<fs::File, FileError> {
    checked("create", path, || fs::File::create(path))
}

/// Opens for appending, creating the file if needed.
pub fn append(path: &Path) -> Result<fs::File, FileError> {
    checked("open", path, || fs::OpenOptions::new().create(true).append(true).open(path))
}

/// Creates a directory and its parents.
pub fn create_dir_all(path: &Path) -> Result<(), FileError> {
    checked("create directory", path, || fs::create_dir_all(path))
}

/// The entries of a directory, sorted by name.
pub fn list(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    checked("list", path, || {
        let mut entries =
            fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        Ok(entries)
    })
}

/// Gives a file or a directory another name in the same file system.
pub fn rename(path: &Path, to: &Path) -> Result<(), FileError> {
    checked("rename", path, || fs::rename(path, to))
}

/// Gives a file a second name in the same file system, in the place of what has that name.
pub fn link(path: &Path, second: &Path) -> Result<(), FileError> {
    remove(second)?;
    checked("link", path, || fs::hard_link(path, second))
}

/// Removes a file; a missing one is fine.
pub fn remove(path: &Path) -> Result<(), FileError> {
    checked("remove", path, || match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    })
}

/// Removes a directory and what is in it; a missing one is fine.
pub fn remove_dir_all(path: &Path) -> Result<(), FileError> {
    checked("remove directory", path, || match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn beside(path: &Path) -> PathBuf {
        PathBuf::from(format!("{}.{}.new", path.display(), std::process::id()))
    }

    #[test]
    fn a_link_that_waits_beside_the_file_leads_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        let [path, victim] = ["plan.json", "passwd"].map(|name| directory.path().join(name));
        write(&victim, "secret").unwrap();
        symlink(&victim, beside(&path)).unwrap();
        write_atomic(&path, "plan").unwrap();
        assert_eq!([&path, &victim].map(|file| read_to_string(file).unwrap()), ["plan", "secret"]);
        assert_eq!(list(directory.path()).unwrap().len(), 2, "nothing is left beside it");
    }

    #[test]
    fn what_is_no_file_is_written_to_and_stays_what_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || read_to_string(&pipe)
        });
        write_atomic(&pipe, "plan").unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), "plan");
        assert!(!pipe.metadata().unwrap().is_file());
        assert!(write_atomic(directory.path(), "plan").is_err());
        assert_eq!(list(directory.path()).unwrap().len(), 1);
    }
}
