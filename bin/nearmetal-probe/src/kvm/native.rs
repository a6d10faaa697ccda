//! The guest's loop on the host itself, for the ratio of instruction rates.
#![allow(unsafe_code, reason = "the same two instructions as in the guest, in assembly")]

use crate::system::clock;

/// Nanoseconds for a number of iterations (at least one) of `dec; jnz`.
pub fn run(iterations: u64) -> u64 {
    let begin = clock::nanoseconds();
    // SAFETY: changes one register and the flags; ends after `iterations` rounds, which are not zero.
    unsafe {
        core::arch::asm!(
            "2:",
            "dec {count}",
            "jnz 2b",
            count = inout(reg) iterations.max(1) => _,
            options(nomem, nostack),
        );
    }
    clock::nanoseconds().saturating_sub(begin)
}
