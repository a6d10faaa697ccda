//! Time, for whoever waits for the kernel: an interface that comes back, a drive that comes up. Waiting for guests goes by
//! [`nearmetal_hypervisor::Hypervisor::now`]. In tests nobody waits, and the clock goes on by what was to be waited.

use std::time::{Duration, Instant};

#[cfg(test)]
thread_local! {
    static WAITED: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

/// The time.
#[cfg(not(test))]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits before the kernel is asked again.
#[cfg(not(test))]
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

#[cfg(test)]
pub(crate) fn now() -> Instant {
    Instant::now() + WAITED.get()
}

#[cfg(test)]
pub(crate) fn pause(time: Duration) {
    WAITED.set(WAITED.get() + time);
}
