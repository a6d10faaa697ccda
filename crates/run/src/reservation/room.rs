//! Room for all that a run may say in its reservation: it is there before the run has anything, so that nobody is kept from saying what
//! he gives back.

use std::fs::File;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

/// The longest file that is read.
pub(super) const LONGEST: u64 = 1 << 20;
/// Lines that a run may write: its first, and four for each of eight pools, which make a line half as long again; one for its
/// function, and one for what did not go back.
const LINES: u64 = 50;
/// Room that is taken at least.
const LEAST: u64 = 64 << 10;

/// Whether others read a file to its end that has all lines. `line`: bytes of the first.
pub(super) fn has(line: usize) -> bool {
    all(line) < LONGEST
}

fn all(line: usize) -> u64 {
    (line as u64).saturating_mul(LINES)
}

/// Takes the room that all lines of a reservation will need: what others fill the directory with must not keep a run from saying what
/// it gives back. `line`: bytes of the first. A file system that cannot promise room has none promised.
pub(super) fn keep(file: &File, line: usize) -> std::io::Result<()> {
    let room = all(line).clamp(LEAST, LONGEST);
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, room)) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
