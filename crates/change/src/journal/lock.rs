//! One writer at a time.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nearmetal_host::FileLock;
use nearmetal_host::files::{self, FileError};

use crate::ChangeError;
use crate::private_files;

/// The right to change the machine; given back when dropped, or by the kernel when the process ends in any way.
#[derive(Debug)]
pub struct WriterLock {
    _file: File,
}

impl WriterLock {
    /// Takes it, or says who has it.
    pub(crate) fn take(path: &Path) -> Result<Self, ChangeError> {
        let mut file = private_files::append(path)?;
        let failed = |source| FileError { action: "lock", path: path.to_owned(), source };
        if !files::try_lock(&file, path)? {
            let mut holder = String::new();
            let _ = (&file).take(32).read_to_string(&mut holder);
            let holder = holder.trim().to_owned();
            let holder = if holder.is_empty() { "unknown".to_owned() } else { holder };
            return Err(ChangeError::Busy { holder });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// The process that has the lock now, by the list of all locks that are held.
pub(super) fn holder(path: &Path, locks: &[FileLock]) -> Result<Option<u32>, ChangeError> {
    let inode = match path.metadata() {
        Ok(metadata) => metadata.ino(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(FileError { action: "look at", path: path.to_owned(), source }.into()),
    };
    // Another file system may have a file of the same number: ours holds the process that took it, unless that process has
    // only just begun.
    let written: Option<u32> = files::read_to_string(path)?.trim().parse().ok();
    let own = |lock: &&FileLock| lock.inode == inode && written.is_none_or(|pid| pid == lock.pid);
    Ok(locks.iter().find(own).map(|lock| lock.pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_known_without_asking_for_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert_eq!(holder(&path, &[]).unwrap(), None, "nobody has ever taken it");
        let taken = WriterLock::take(&path).unwrap();
        let (inode, pid) = (path.metadata().unwrap().ino(), std::process::id());
        let lock = |pid, inode| FileLock { pid, inode };
        assert_eq!(holder(&path, &[lock(1, inode + 1), lock(pid, inode)]).unwrap(), Some(pid));
        assert_eq!(holder(&path, &[lock(pid + 1, inode)]).unwrap(), None, "a file of another file system");
        assert_eq!(holder(&path, &[]).unwrap(), None, "given back");
        drop(taken);
        WriterLock::take(&path).unwrap();
    }
}
