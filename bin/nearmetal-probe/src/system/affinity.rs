//! Which CPUs a thread may run on, by `sched_setaffinity(2)` and `sched_getaffinity(2)`.
//!
//! glibc's `cpu_set_t` and rustix's `CpuSet` end at 1024 CPUs; Linux on x86 goes to 8192, so the mask is our own.
#![allow(unsafe_code, reason = "two system calls that take a pointer to a bit mask")]

use std::io;

use nearmetal_units::CpuSet;

/// CPUs a mask can name: the largest NR_CPUS of x86 (arch/x86/Kconfig, MAXSMP).
pub const CPU_LIMIT: u32 = 8192;
const WORDS: usize = CPU_LIMIT as usize / 64;

/// Restricts the calling thread (and threads and programs it starts later) to these CPUs.
///
/// # Errors
/// The kernel's: `EINVAL` when none of them exists. The kernel drops the ones that do not exist *without an error*:
/// compare with [`get`].
pub fn set(cpus: &CpuSet) -> io::Result<()> {
    let mut mask = [0u64; WORDS];
    for cpu in cpus.iter() {
        let word = mask.get_mut(cpu as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (cpu % 64);
    }
    // SAFETY: the kernel reads `size_of_val(&mask)` bytes from `mask`, which lives through the call.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&mask), mask.as_ptr()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The CPUs the calling thread may run on.
///
/// # Errors
/// The kernel's.
pub fn get() -> io::Result<CpuSet> {
    let mut mask = [0u64; WORDS];
    // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes to `mask`, which lives through the call.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask), mask.as_mut_ptr()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..CPU_LIMIT).filter(|cpu| (mask[*cpu as usize / 64] >> (cpu % 64)) & 1 == 1).collect())
}

/// The CPU the calling thread is on at this moment.
pub fn current() -> u32 {
    rustix::thread::sched_getcpu() as u32
}
