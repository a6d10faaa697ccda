//! Holding a file, so that others see it, and asking whether one is held: open file description locks (fcntl(2)).
//!
//! flock(2) takes a file that is open to read, so whoever may read a reservation could hold it too, and a dead run would count as
//! living for ever. A write lock of fcntl(2) takes a descriptor that is open to write, which only the file's owner and root get.
//! It belongs to the open file, as flock(2)'s does, and not to the process: closing another descriptor of the file keeps it.
#![allow(unsafe_code, reason = "rustix has no open file description locks")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A lock of the whole file. `kind`: F_RDLCK, F_WRLCK.
fn whole(kind: libc::c_int) -> libc::flock {
    // The kinds are 0, 1 and 2 (fcntl(2)).
    let l_type = libc::c_short::try_from(kind).unwrap_or_default();
    let l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
    // The process is 0 for such locks, or the kernel refuses them.
    libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Takes it, unless somebody has a lock that is in the way. The kernel gives it back when the last copy of `file` is closed.
///
/// # Errors
/// The file is not open to write, or its file system cannot lock.
pub(super) fn try_hold(file: &File) -> io::Result<bool> {
    set(file, libc::F_WRLCK)
}

pub(super) fn set(file: &File, kind: libc::c_int) -> io::Result<bool> {
    let wanted = whole(kind);
    // SAFETY: the kernel reads a `flock` that lives during the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) };
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(true),
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Whether somebody holds it who could write it. Locks of readers do not count.
///
/// # Errors
/// Its file system cannot lock.
pub(super) fn is_held(file: &File) -> io::Result<bool> {
    // What would be in the way of a reader: a writer's lock alone.
    let mut asked = whole(libc::F_RDLCK);
    // SAFETY: the kernel reads and writes a `flock` that lives during the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut asked) };
    match result {
        0 => Ok(libc::c_int::from(asked.l_type) != libc::F_UNLCK),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::files;

    #[test]
    fn a_file_is_held_by_who_can_write_it_and_by_no_reader() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run-a.run");
        files::write(&path, "x").unwrap();
        let (owner, reader) = (files::append(&path).unwrap(), files::open(&path).unwrap());
        assert!(try_hold(&reader).is_err());
        assert!(set(&reader, libc::F_RDLCK).unwrap());
        assert!(!is_held(&files::open(&path).unwrap()).unwrap());
        assert!(!try_hold(&owner).unwrap());
        assert!(set(&reader, libc::F_UNLCK).unwrap());
        assert!(try_hold(&owner).unwrap());
        assert!(is_held(&reader).unwrap() && !set(&reader, libc::F_RDLCK).unwrap());
        // flock(2) of a reader is another kind of lock.
        drop(owner);
        assert!(files::try_lock(&reader, &path).unwrap());
        assert!(!is_held(&files::open(&path).unwrap()).unwrap());
    }
}
