//! Ending a process that was found, and no other that got its number meanwhile.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long the kernel may take to end a process: it gives back its memory first.
const ENDING: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Ends the process that `find` finds, and waits until it is gone. `None`: there is none.
///
/// The number of a process that a scan found may be another's by the time it is used. So the process is held first (pidfd_open(2)),
/// and looked for again then: a signal to what is held reaches that process or nobody.
///
/// # Errors
/// `find` cannot look, or the process does not end; in words.
pub(crate) fn end(find: &dyn Fn() -> Result<Option<u32>, String>) -> Result<Option<u32>, String> {
    let Some(number) = find()? else { return Ok(None) };
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let held = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(held) => held,
        Err(Errno::SRCH) => return Ok(None),
        Err(errno) => return Err(format!("cannot hold process {number}: {errno}")),
    };
    if find()? != Some(number) {
        return Ok(None);
    }
    match pidfd_send_signal(&held, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(format!("cannot end process {number}: {errno}")),
    }
    // It can be read as soon as the process has ended.
    match poll(&mut [PollFd::new(&held, PollFlags::IN)], Some(&ENDING)) {
        Ok(0) => Err(format!("process {number} does not end")),
        Ok(_) => Ok(Some(number)),
        Err(errno) => Err(format!("cannot wait for process {number}: {errno}")),
    }
}
