//! Who holds a file's lock, without asking for the lock: whoever asks for it would keep others from it for that moment.

use crate::{HostFs, ReadError};

/// Whole-file locks of flock(2), as /proc/locks lists them (proc_locks(5)).
const LOCKS: &str = "/proc/locks";

/// One exclusive lock of flock(2) that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLock {
    /// Who took it; another number, or 0, for a process of another PID namespace.
    pub pid: u32,
    /// The file's inode number.
    pub inode: u64,
}

/// The exclusive locks of flock(2) that processes hold now.
///
/// # Errors
/// /proc/locks cannot be read.
pub fn file_locks(files: &HostFs) -> Result<Vec<FileLock>, ReadError> {
    Ok(files.read(LOCKS)?.lines().filter_map(held).collect())
}

/// A line such as `1: FLOCK  ADVISORY  WRITE 4711 fe:01:131 0 EOF`; `None` for a lock of another kind and for who only waits
/// (`1: -> FLOCK …`). The device is left out: file systems with subvolumes show another than stat(2) does.
fn held(line: &str) -> Option<FileLock> {
    let mut words = line.split_whitespace().skip(1);
    if (words.next()?, words.next()?, words.next()?) != ("FLOCK", "ADVISORY", "WRITE") {
        return None;
    }
    let pid = words.next()?.parse().ok()?;
    let inode = words.next()?.rsplit_once(':')?.1.parse().ok()?;
    Some(FileLock { pid, inode })
}

/// For the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_target() -> crate::fuzzing::Target {
    crate::fuzzing::Target::text("held locks", SAMPLE, |text| drop(text.lines().filter_map(held).collect::<Vec<_>>()))
}

/// Debian 12, with one lock for each way to differ from ours.
#[cfg(any(test, feature = "fuzzing"))]
const SAMPLE: &str = "1: FLOCK  ADVISORY  WRITE 4711 fe:01:131 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4712 fe:01:131 0 EOF
2: POSIX  ADVISORY  WRITE 812 00:19:942 0 EOF
3: FLOCK  ADVISORY  READ 813 00:19:943 0 EOF
4: OFDLCK ADVISORY  WRITE -1 00:06:12 0 EOF
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exclusive_flocks_that_are_held_count() {
        let all: Vec<FileLock> = SAMPLE.lines().filter_map(held).collect();
        assert_eq!(all, [FileLock { pid: 4711, inode: 131 }]);
    }

    #[test]
    fn damaged_lines_hold_nothing() {
        for line in
            ["", "1:", "1: FLOCK  ADVISORY  WRITE", "1: FLOCK  ADVISORY  WRITE x a:b:1", "1: FLOCK ADVISORY WRITE 1 1"]
        {
            assert_eq!(held(line), None, "{line}");
        }
    }
}
