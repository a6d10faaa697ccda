//! Ending a guest's QEMU without libvirt.

use nearmetal_host::{HostFs, guests};

use crate::process;

/// Ends the QEMU process of the domain with this UUID, and waits until it is gone. `None`: there is none.
///
/// # Errors
/// /proc cannot be listed, or the process does not end; in words.
pub fn end(fs: &HostFs, uuid: &str) -> Result<Option<u32>, String> {
    process::end(&|| guests::own_pid_of(fs, uuid).map_err(|error| error.to_string()))
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
