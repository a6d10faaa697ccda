//! Ways for a lab to end: taken down, rebooted, or without power.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::LabError;
use crate::exec::Command;
use crate::lab::Lab;
use crate::launch::Process;
use crate::lock::Lock;
use crate::ssh;
use crate::sweep;

/// How a lab ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Its operating system shut down.
    Cleanly,
    /// It was killed: its disks are thrown away, or it did not shut down in time.
    Killed,
}

/// How long a killed process may take to be gone.
const KILL: Duration = Duration::from_secs(30);
/// How long a lab with kept disks may take to shut down.
const SHUT_DOWN: Duration = Duration::from_secs(90);

impl Lab {
    /// Takes the lab down. One with kept disks is shut down first; nothing else of it remains.
    ///
    /// # Errors
    /// Its process cannot be killed, or its files cannot be removed.
    pub fn down(self) -> Result<Stopped, LabError> {
        let stopped = if self.record.keep && self.shut_down() { Stopped::Cleanly } else { Stopped::Killed };
        ssh::disconnect(&self.state, self.ssh_port());
        end(self.name().as_str(), self.process())?;
        let _lock = Lock::wait(&self.places.run().join(".lock"))?;
        sweep::discard(&self.places, self.name())?;
        Ok(stopped)
    }

    /// The power is cut: QEMU is killed at once. What the guest did not flush may be lost; what it flushed to kept
    /// disks is not. The name can be brought `up` again.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub fn power_loss(&self) -> Result<(), LabError> {
        end(self.name().as_str(), self.process())?;
        ssh::disconnect(&self.state, self.ssh_port());
        Ok(())
    }

    /// Reboots: the operating system shuts down, and QEMU starts again with the disks as they are, throw-away ones too.
    /// Waits until libvirt answers.
    ///
    /// # Errors
    /// The system did not shut down, or did not come back within `limit`.
    pub fn reboot(&self, limit: Duration) -> Result<(), LabError> {
        let started = Instant::now();
        {
            // While it is off it looks like something to sweep.
            let _lock = Lock::wait(&self.places.run().join(".lock"))?;
            if !self.shut_down() {
                return Err(LabError::NotOff { name: self.name().to_string(), limit: SHUT_DOWN });
            }
            self.start_again()?;
        }
        self.wait_ready(limit.saturating_sub(started.elapsed()))
    }

    /// Whether the operating system powered off in time.
    fn shut_down(&self) -> bool {
        let started = Instant::now();
        let _ = self.exec(&Command::new(["systemctl", "poweroff"]).timeout(Duration::from_secs(30)));
        while started.elapsed() < SHUT_DOWN {
            if !self.is_alive() {
                return true;
            }
            thread::sleep(Duration::from_millis(100));
        }
        false
    }
}

/// Kills a process and waits until it is gone. The start time in its record keeps it from being anyone else's.
pub(crate) fn end(name: &str, process: Process) -> Result<(), LabError> {
    let deadline = Instant::now() + KILL;
    while process.is_alive() {
        if let Some(pid) = Pid::from_raw(process.pid as i32) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if Instant::now() > deadline {
            return Err(LabError::Unkillable { name: name.to_owned(), pid: process.pid, limit: KILL });
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
