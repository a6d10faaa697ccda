//! Ending a guest's QEMU without libvirt.

use nearmetal_host::{HostFs, guests};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long the kernel may take to end a process: it gives back its memory first.
const ENDING: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Ends the QEMU process of the domain with this UUID, and waits until it is gone. `None`: there is none.
///
/// The number of a process that a scan found may be another's by the time it is used. So the process is held first (pidfd_open(2)),
/// and looked at again then: a signal to what is held reaches that process or nobody.
///
/// # Errors
/// /proc cannot be listed, or the process does not end; in words.
pub fn end(fs: &HostFs, uuid: &str) -> Result<Option<u32>, String> {
    let find = || guests::pid_of(fs, uuid).map_err(|error| error.to_string());
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// A process that looks like QEMU's of a domain, and waits.
    fn waiting(uuid: &str) -> Child {
        let mut command = Command::new("sh");
        command.arg0("qemu-system-x86_64").args(["-c", "read line", "-uuid", uuid]);
        command.stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn the_guests_process_is_ended_and_no_other() {
        let (uuid, other) = ("7d1bb2fa-1111-4222-8333-0123456789ab", "7d1bb2fa-1111-4222-8333-0123456789ac");
        let (mut meant, mut beside) = (waiting(uuid), waiting(other));
        let began = std::time::Instant::now();
        let ended = loop {
            // Until the shell is there.
            match end(&HostFs::live(), uuid).unwrap() {
                Some(pid) => break pid,
                None => assert!(began.elapsed() < Duration::from_secs(20), "it was not found"),
            }
        };
        assert_eq!(ended, meant.id());
        assert_eq!(meant.wait().unwrap().signal(), Some(9));
        assert!(beside.try_wait().unwrap().is_none());
        assert_eq!(end(&HostFs::live(), uuid).unwrap(), None);
        beside.kill().unwrap();
        beside.wait().unwrap();
    }
}
