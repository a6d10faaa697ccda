//! Ending a process that was found, and no other that got its number meanwhile.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long the kernel may take to end a process: it gives back its memory first.
const ENDING: Duration = Duration::from_secs(10);
/// How often another process may be found than the one that is held.
const LOOKS: u32 = 16;

/// Ends the process that `find` finds, and waits until it is gone. `None`: there is none.
///
/// The number of a process that a scan found may be another's by the time it is used. So the process is held first (pidfd_open(2)),
/// and looked for again then: a signal to what is held reaches that process or nobody.
///
/// # Errors
/// `find` cannot look, or the process does not end; in words.
pub(crate) fn end(find: &dyn Fn() -> Result<Option<u32>, String>) -> Result<Option<u32>, String> {
    for _ in 0..LOOKS {
        if let Some(ended) = end_one(find)? {
            return Ok(ended);
        }
    }
    Err("each look finds another process".to_owned())
}

/// `None`: another was found at the second look.
fn end_one(find: &dyn Fn() -> Result<Option<u32>, String>) -> Result<Option<Option<u32>>, String> {
    let Some(number) = find()? else { return Ok(Some(None)) };
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
        return Err(format!("{number} is not the number of a process"));
    };
    let held = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(held) => held,
        // It has ended since, or the number is that of a thread: what is there now says the next look.
        Err(Errno::SRCH) => return Ok(None),
        Err(errno) => return Err(format!("cannot hold process {number}: {errno}")),
    };
    match find()? {
        Some(again) if again == number => {}
        Some(_) => return Ok(None),
        None => return Ok(Some(None)),
    }
    match pidfd_send_signal(&held, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(format!("cannot end process {number}: {errno}")),
    }
    // It can be read as soon as the process has ended.
    let began = Instant::now();
    loop {
        let left = ENDING.saturating_sub(began.elapsed()).try_into().map_err(|_| "a wait is too long".to_owned())?;
        match poll(&mut [PollFd::new(&held, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(format!("process {number} does not end")),
            Ok(_) => return Ok(Some(Some(number))),
            // A signal for this program.
            Err(Errno::INTR) => {}
            Err(errno) => return Err(format!("cannot wait for process {number}: {errno}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::process::Command;

    #[test]
    fn another_process_at_the_second_look_is_not_taken_for_the_end_of_the_first() {
        let mut children = [(); 2].map(|()| Command::new("sleep").arg("60").spawn().unwrap());
        let [first, second] = [children[0].id(), children[1].id()];
        // Somebody starts one that looks the same between two looks.
        let looks = Cell::new(0);
        let found = |numbers: &[u32]| {
            looks.set(looks.get() + 1);
            Ok(numbers.get(looks.get() - 1).or(numbers.last()).copied())
        };
        assert_eq!(end(&|| found(&[first, second, second])), Ok(Some(second)));
        children[1].wait().unwrap();
        assert!(children[0].try_wait().unwrap().is_none());
        looks.set(0);
        let back_and_forth: Vec<u32> = [first, std::process::id()].repeat(40);
        assert!(end(&|| found(&back_and_forth)).is_err());
        assert!(children[0].try_wait().unwrap().is_none());
        children[0].kill().unwrap();
        children[0].wait().unwrap();
    }
}
