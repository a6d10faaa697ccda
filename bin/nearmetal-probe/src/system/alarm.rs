//! A periodic SIGALRM that makes blocking calls return `EINTR`, so that a guest that never exits cannot hang the probe.
#![allow(unsafe_code, reason = "installing a signal handler")]

use std::io;
use std::time::Duration;

extern "C" fn ignore(_signal: libc::c_int) {}

/// A running timer; dropping it stops it.
#[derive(Debug)]
pub struct Alarm(());

impl Alarm {
    /// Interrupts system calls of this process every `period`. Periodic, because one signal may arrive just before
    /// the call it should interrupt.
    ///
    /// # Errors
    /// The kernel's.
    pub fn every(period: Duration) -> io::Result<Self> {
        // SAFETY: all-zero is a valid sigaction; the handler does nothing, so it is async-signal-safe; no SA_RESTART,
        // since the interruption is the purpose. Both structures live through the calls.
        let answer = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut())
        };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        set_timer(period)?;
        Ok(Self(()))
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // A timer that cannot be stopped only calls the empty handler.
        let _ = set_timer(Duration::ZERO);
    }
}

fn set_timer(period: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: libc::time_t::try_from(period.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::from(period.subsec_micros() as i32),
    };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the kernel reads one itimerval, which lives through the call; the old value is not asked for.
    let answer = unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
