//! The rate of this processor's time stamp counter, which emulated processors hand through.
//!
//! A lab's kernel measures that rate against an emulated timer while it boots, and on a busy host gets it wrong by a
//! factor (one tenth was seen), and then all its time is wrong by that factor. So it is measured here and handed in.

#![allow(unsafe_code, reason = "reading the counter is one instruction that the standard library marks unsafe")]

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Windows measured; their median is taken, since any may be cut by other work on this host.
const WINDOWS: usize = 5;
/// Length of one.
const WINDOW: Duration = Duration::from_millis(20);

/// Thousands of ticks a second.
#[cfg(target_arch = "x86_64")]
pub(crate) fn counter_khz() -> Option<u32> {
    let read = || {
        // The pair of readings is as close as one instruction to the next; a cut between them shows as a long window.
        let before = Instant::now();
        // SAFETY: RDTSC reads a register and touches no memory; every x86-64 processor has it.
        let ticks = unsafe { core::arch::x86_64::_rdtsc() };
        (before, ticks)
    };
    let mut rates: Vec<u128> = (0..WINDOWS)
        .filter_map(|_| {
            let (start, first) = read();
            sleep(WINDOW);
            let (end, last) = read();
            let nanoseconds = end.duration_since(start).as_nanos().max(1);
            Some(u128::from(last.checked_sub(first)?) * 1_000_000 / nanoseconds)
        })
        .collect();
    rates.sort_unstable();
    rates.get(rates.len() / 2).and_then(|rate| u32::try_from(*rate).ok()).filter(|rate| *rate > 100_000)
}

/// Other processors have other counters; their labs calibrate for themselves.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn counter_khz() -> Option<u32> {
    None
}
