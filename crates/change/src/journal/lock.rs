//! One writer at a time, one measurement at a time, and who they are.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nearmetal_host::files::{self, FileError};
use nearmetal_host::{HostFs, file_locks, guests};

use crate::ChangeError;
use crate::private_files;

/// How long a process may take from having the lock to having written its number.
const WRITTEN_BY: Duration = Duration::from_millis(50);

/// The right to change the machine, or to measure on it; given back when dropped, or by the kernel when the process ends in any way.
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

/// What another nearmetal does that looks would disturb, or misread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// It changes the machine: apply, rollback, `doctor --fix`, `device`.
    Changing,
    /// It measures: guests are paused and functions change hands for it.
    Measuring,
}

/// A nearmetal that is at work on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtWork {
    /// What it does.
    pub work: Work,
    /// Its process; `None` for one of another PID namespace.
    pub pid: Option<u32>,
}

impl AtWork {
    /// Refuses what it is in the way of.
    pub fn busy(&self) -> ChangeError {
        let holder = self.pid.map_or_else(|| "of another PID namespace".to_owned(), |pid| pid.to_string());
        ChangeError::Busy { holder }
    }
}

impl fmt::Display for AtWork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.work {
            Work::Changing => "another nearmetal is changing this machine",
            Work::Measuring => "another nearmetal is measuring on this machine",
        })?;
        match self.pid {
            Some(pid) => write!(formatter, " (process {pid})"),
            None => formatter.write_str(" (a process of another PID namespace)"),
        }
    }
}

/// Who has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// This process; `None` for one of another PID namespace.
    Process(Option<u32>),
    /// A file of this inode number is locked by this process, and ours names another: a process that has only just begun, one
    /// of another PID namespace, or a file of another file system.
    Disputed(u32),
}

/// The process that has the lock now, by the list of all locks that are held; the inner `None` for one of another PID
/// namespace.
pub(super) fn holder(path: &Path, files: &HostFs) -> Result<Option<Option<u32>>, ChangeError> {
    let mut found = look(path, files)?;
    if matches!(found, Holder::Disputed(_)) {
        sleep(WRITTEN_BY);
        found = look(path, files)?;
    }
    Ok(match found {
        Holder::Nobody => None,
        Holder::Process(pid) => Some(pid),
        // Nobody is disturbed by waiting for one who is not there; who is there may be. So only a process that is seen to
        // have no file of this name open is taken for another's.
        Holder::Disputed(pid) => guests::may_have_open(files, pid, path).then_some(Some(pid)),
    })
}

fn look(path: &Path, files: &HostFs) -> Result<Holder, ChangeError> {
    let inode = match path.metadata() {
        Ok(metadata) => metadata.ino(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Holder::Nobody),
        Err(source) => return Err(FileError { action: "look at", path: path.to_owned(), source }.into()),
    };
    let written = || -> Result<Option<u32>, ChangeError> { Ok(files::read_to_string(path)?.trim().parse().ok()) };
    let before = written()?;
    let locks = file_locks(files).map_err(|error| ChangeError::Kernel(error.to_string()))?;
    let after = written()?;
    let own: Vec<u32> = locks.iter().filter(|lock| lock.inode == inode).map(|lock| lock.pid).collect();
    let named = own.iter().find(|pid| [before, after].contains(&Some(**pid)));
    let nobody_named = before.is_none() || after.is_none();
    Ok(match own.first() {
        None => Holder::Nobody,
        Some(_) if own.contains(&0) && named.is_none() => Holder::Process(None),
        Some(first) => match named {
            Some(pid) => Holder::Process(Some(*pid)),
            None if nobody_named => Holder::Process(Some(*first)),
            None => Holder::Disputed(*first),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use nearmetal_host::{Entry, MemoryTree, TestKernel};

    use super::*;
    use crate::Journal;

    /// A kernel that lists these locks, and a process 1 that has this open.
    fn kernel(locks: &[(u32, u64)], open: &str) -> HostFs {
        let mut tree = MemoryTree::new();
        let line = |(pid, inode): &(u32, u64)| format!("1: FLOCK  ADVISORY  WRITE {pid} fe:01:{inode} 0 EOF\n");
        let text: String = locks.iter().map(line).collect();
        tree.put("/proc/locks", Entry::File(text.into())).unwrap();
        tree.put("/proc/1/fd/3", Entry::Link(open.to_owned())).unwrap();
        tree.put("/proc/1/fdinfo/3", Entry::File("pos:\t0\nflags:\t02\n".into())).unwrap();
        HostFs::of_tree(tree, "locks")
    }

    #[test]
    fn the_holder_is_known_without_asking_for_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let by = |locks: &[(u32, u64)], open: &str| holder(&path, &kernel(locks, open)).unwrap();
        assert_eq!(by(&[], ""), None, "nobody has ever taken it");
        let taken = WriterLock::take(&path).unwrap();
        let (inode, pid) = (path.metadata().unwrap().ino(), std::process::id());
        assert_eq!(by(&[(1, inode + 1), (pid, inode)], ""), Some(Some(pid)));
        assert_eq!(by(&[(1, inode), (pid, inode)], "/run/crond.pid"), Some(Some(pid)), "two of one inode number");
        assert_eq!(by(&[(1, inode)], "/run/crond.pid"), None, "a file of another file system");
        assert_eq!(by(&[(1, inode)], "/lock"), Some(Some(1)), "the file names one of another PID namespace");
        assert_eq!(by(&[(u32::MAX, inode)], ""), Some(Some(u32::MAX)), "what it has open cannot be seen");
        assert_eq!(by(&[(0, inode)], ""), Some(None), "it is of another PID namespace");
        assert_eq!(by(&[], ""), None, "given back");
        drop(taken);
        WriterLock::take(&path).unwrap();
    }

    /// A kernel whose list of locks is read a second time only after the holder has written its number.
    #[derive(Debug)]
    struct Writes {
        path: PathBuf,
        looks: AtomicU32,
    }

    impl TestKernel for Writes {
        fn reads(&self, path: &str) {
            if path == "/proc/locks" && self.looks.fetch_add(1, Ordering::Relaxed) == 1 {
                files::write(&self.path, "1\n").unwrap();
            }
        }

        fn writes(&self, path: &str, value: &str) -> std::io::Result<()> {
            panic!("whoever looks writes `{value}` to `{path}`")
        }
    }

    #[test]
    fn a_holder_that_has_not_written_its_number_yet_is_the_holder() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        // As a process does that has the lock and still finds the number of the one before it.
        files::write(&path, "4711\n").unwrap();
        let inode = path.metadata().unwrap().ino();
        let writes = Writes { path: path.clone(), looks: AtomicU32::new(0) };
        let late = kernel(&[(1, inode)], "/run/crond.pid").with_kernel(writes);
        assert_eq!(holder(&path, &late).unwrap(), Some(Some(1)));
        files::write(&path, "").unwrap();
        assert_eq!(holder(&path, &kernel(&[(1, inode)], "/run/crond.pid")).unwrap(), Some(Some(1)), "nothing written");
    }

    #[test]
    fn who_changes_the_machine_and_who_measures_on_it_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::at(directory.path());
        let nobody = kernel(&[], "");
        assert_eq!(journal.at_work(&nobody).unwrap(), None, "nobody has ever taken either");
        let _taken = (journal.lock().unwrap(), journal.lock_to_measure().unwrap());
        let inode = |name: &str| directory.path().join(name).metadata().unwrap().ino();
        let own = std::process::id();
        let said = |locks: &[(u32, u64)]| journal.at_work(&kernel(locks, "")).unwrap().unwrap().to_string();
        assert_eq!(
            said(&[(own, inode("lock"))]),
            format!("another nearmetal is changing this machine (process {own})")
        );
        assert_eq!(
            said(&[(0, inode("measuring"))]),
            "another nearmetal is measuring on this machine (a process of another PID namespace)"
        );
        assert_eq!(journal.at_work(&nobody).unwrap(), None, "files that nobody has locked say nothing");
    }

    /// The way out of a crash would be the wrong one beside a process that is in the middle of its change.
    #[test]
    fn a_change_that_somebody_is_making_is_no_interrupted_one() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::at(directory.path());
        let _taken = journal.lock().unwrap();
        let inode = directory.path().join("lock").metadata().unwrap().ino();
        let said = |locks: &[(u32, u64)], named: &str| {
            files::write(&directory.path().join("lock"), named).unwrap();
            let unfinished = ChangeError::Unfinished { transaction: 7, started: "now".to_owned() };
            journal.who_is_at_it(unfinished, &kernel(locks, "/lock")).to_string()
        };
        assert!(said(&[(1, inode)], "1").contains("(process 1): wait until it ends"));
        assert!(said(&[(0, inode)], "").contains("(process of another PID namespace)"));
        let own = std::process::id();
        assert!(said(&[(own, inode)], &own.to_string()).contains("transaction 7, started now, is unfinished"));
        assert!(said(&[], "1").contains("is unfinished"), "nobody is at it");
        let other = ChangeError::NothingToRollBack("nothing".to_owned());
        assert_eq!(journal.who_is_at_it(other, &kernel(&[(1, inode)], "/lock")).to_string(), "nothing");
    }

    #[test]
    fn a_lock_that_cannot_be_looked_at_is_not_free() {
        let directory = tempfile::tempdir().unwrap();
        files::write(&directory.path().join("state"), "not a directory").unwrap();
        let path = directory.path().join("state/lock");
        let error = holder(&path, &kernel(&[], "")).unwrap_err().to_string();
        assert!(error.contains("state/lock"), "{error}");
    }
}
