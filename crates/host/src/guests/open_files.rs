//! Open files of a guest: which disks it has, whether past the page cache, and through which engine.
//!
//! What QEMU was asked to do and what it does differ: io_uring may be forbidden, and QEMU then falls back without a
//! word. Rings and their counters cannot lie.

use std::path::Path;

use crate::facts::parsed;
use crate::parse::{Parsed, malformed};
use crate::{HostFs, ReadError};

/// O_DIRECT on x86, POWER and most others is 0o40000; on ARM it is 0o200000 (asm/fcntl.h).
const O_DIRECT: u32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) { 0o200_000 } else { 0o40_000 };

/// What /proc/PID/fd/N of an io_uring instance points to.
const RING: &str = "anon_inode:[io_uring]";

/// One open file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenFile {
    /// Descriptor number.
    pub fd: u32,
    /// What it is: a path, `socket:[…]`, `anon_inode:[…]`.
    pub target: String,
    /// Open flags, as in open(2).
    pub flags: u32,
    /// Opened with O_DIRECT: reads and writes bypass the host's page cache.
    pub direct: bool,
    /// State of the ring, for an io_uring instance. `None` for a ring whose owner was just then using it.
    pub io_uring: Option<IoUring>,
}

impl OpenFile {
    /// Whether this is an io_uring instance.
    pub fn is_io_uring(&self) -> bool {
        self.target == RING
    }
}

/// Counters of an io_uring instance. They count up and wrap; a completion tail that moves under load is the proof that
/// requests go through this ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoUring {
    /// Submission entries minus one.
    pub sq_mask: u32,
    /// Submissions the kernel has taken.
    pub sq_head: u32,
    /// Submissions the program has put in.
    pub sq_tail: u32,
    /// Completions the program has taken.
    pub cq_head: u32,
    /// Completions the kernel has put in.
    pub cq_tail: u32,
}

/// Open files of a process, by descriptor. A file closed meanwhile is left out.
///
/// # Errors
/// No such process; not this user's; a file whose fdinfo makes no sense.
pub fn open_files(fs: &HostFs, pid: u32) -> Result<Vec<OpenFile>, ReadError> {
    let mut files = Vec::new();
    for name in fs.list(&format!("/proc/{pid}/fd"))? {
        let Ok(fd) = name.parse::<u32>() else { continue };
        match open_file(fs, pid, fd) {
            Ok(file) => files.push(file),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

/// Whether a process has a file of that name open, in whatever directory, as far as can be seen: of whom nothing can be seen
/// may have. For locks, which the kernel names by inode numbers that files of other file systems have too.
pub fn may_have_open(fs: &HostFs, pid: u32, path: &Path) -> bool {
    let is_one = |file: &OpenFile| Path::new(&file.target).file_name() == path.file_name();
    open_files(fs, pid).map_or(true, |open| open.iter().any(is_one))
}

/// How many Linux AIO contexts (`aio=native`) a process has: each has a ring mapped as `/[aio]`.
///
/// # Errors
/// No such process, not this user's, or a maps file that makes no sense.
pub fn count_aio_rings(fs: &HostFs, pid: u32) -> Result<usize, ReadError> {
    let path = format!("/proc/{pid}/maps");
    let mappings = parsed(&path, &fs.read(&path)?, super::maps::parse)?;
    Ok(mappings.iter().filter(|mapping| mapping.path.starts_with("/[aio]")).count())
}

fn open_file(fs: &HostFs, pid: u32, fd: u32) -> Result<OpenFile, ReadError> {
    let target = fs.link_target(&format!("/proc/{pid}/fd/{fd}"))?;
    let path = format!("/proc/{pid}/fdinfo/{fd}");
    let info = fs.read(&path)?;
    let flags = parsed(&path, &info, open_flags)?;
    let io_uring = if target == RING { parsed(&path, &info, ring)? } else { None };
    Ok(OpenFile { fd, target, flags, direct: flags & O_DIRECT != 0, io_uring })
}

fn value<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

pub(super) fn open_flags(info: &str) -> Parsed<u32> {
    match value(info, "flags") {
        Some(octal) if !octal.starts_with('+') => match u32::from_str_radix(octal, 8) {
            Ok(flags) => Ok(flags),
            Err(_) => malformed("`flags:` is not an octal number"),
        },
        _ => malformed("there is no line `flags:`"),
    }
}

/// Counters of a ring; `None` if the kernel left them out, as it does while the ring is locked by its owner.
pub(super) fn ring(info: &str) -> Parsed<Option<IoUring>> {
    if value(info, "CqTail").is_none() {
        return Ok(None);
    }
    let number = |name: &str| -> Parsed<u32> {
        let text = value(info, name).unwrap_or("");
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        if text.contains('+') {
            return malformed(format!("`{name}:` is not a number"));
        }
        parsed.or_else(|_| malformed(format!("`{name}:` is not a number")))
    };
    Ok(Some(IoUring {
        sq_mask: number("SqMask")?,
        sq_head: number("SqHead")?,
        sq_tail: number("SqTail")?,
        cq_head: number("CqHead")?,
        cq_tail: number("CqTail")?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INFO: &str = "pos:\t0\nflags:\t02140002\nmnt_id:\t16\nino:\t1057\nSqMask:\t0x7f\nSqHead:\t12\nSqTail:\t13\n\
                        CachedSqHead:\t12\nCqMask:\t0xff\nCqHead:\t11\nCqTail:\t12\nCachedCqTail:\t12\nSQEs:\t0\n";

    #[test]
    fn a_ring_reads_as_the_kernel_writes_it() {
        let ring = ring(INFO).unwrap().unwrap();
        assert_eq!((ring.sq_mask, ring.sq_head, ring.sq_tail, ring.cq_head, ring.cq_tail), (0x7f, 12, 13, 11, 12));
        assert_eq!(open_flags(INFO), Ok(0o2_140_002));
        assert_eq!(open_flags(INFO).unwrap() & 0o40_000, 0o40_000);
    }

    #[test]
    fn junk_is_refused_and_a_locked_ring_is_unknown() {
        assert_eq!(ring("flags:\t02\n"), Ok(None));
        assert!(ring("SqMask:\t0x7f\nCqTail:\tmany\n").is_err());
        for junk in ["", "flags:\t\n", "flags:\t9\n", "flags:\t+2\n"] {
            assert!(open_flags(junk).is_err(), "{junk:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let info = format!("flags:\t{text}\nCqTail:\t{text}\nSqMask:\t0x{text}\n");
            let _ = (open_flags(&info), ring(&info));
        }
    }
}
