//! The clock every figure is taken with: CLOCK_MONOTONIC_RAW, which no time service slews.

use rustix::time::{ClockId, clock_gettime};

/// Name of the clock, for results.
pub const NAME: &str = "CLOCK_MONOTONIC_RAW";

/// Nanoseconds since an arbitrary start.
pub fn nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::MonotonicRaw);
    u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Nanoseconds one reading costs, averaged over 64: tens where it is read without entering the kernel, thousands
/// where the clock source makes each reading an exit (HPET or ACPI timer in a guest).
pub fn cost() -> f64 {
    let start = nanoseconds();
    for _ in 0..62 {
        std::hint::black_box(nanoseconds());
    }
    nanoseconds().saturating_sub(start) as f64 / 63.0
}
