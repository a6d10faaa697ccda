//! One virtual machine with one processor and 64 KiB, through /dev/kvm.
#![allow(unsafe_code, reason = "handing guest memory to KVM, and opening its file descriptor")]

use std::io;
use std::os::fd::IntoRawFd;
use std::time::Duration;

use kvm_bindings::{KVM_MAX_CPUID_ENTRIES, kvm_regs, kvm_segment, kvm_userspace_memory_region};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use rustix::fs::{Mode, OFlags};

use crate::error::ProbeError;
use crate::kvm::counters::{Counters, Counts};
use crate::kvm::guest_code::{Exit, MEMORY_BYTES, PAGE_TABLE, address, load};
use crate::system::alarm::Alarm;
use crate::system::clock;
use crate::system::mapping::{Mapping, PageKind};

/// A run that lasts longer is given up. Runs are calibrated to a few milliseconds.
const RUN_LIMIT_NANOSECONDS: u64 = 1_000_000_000;

/// Opens /dev/kvm. The answer of the system decides between `absent` and `not permitted`.
///
/// # Errors
/// The system's.
pub fn open() -> io::Result<Kvm> {
    let file = rustix::fs::open("/dev/kvm", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: the descriptor was just opened, is open read-write, and is owned by the returned value alone.
    let kvm = unsafe { <Kvm as std::os::fd::FromRawFd>::from_raw_fd(file.into_raw_fd()) };
    // KVM_GET_API_VERSION is the one call every KVM answers, and has answered 12 since Linux 2.6.22.
    match kvm.get_api_version() {
        12 => Ok(kvm),
        _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
    }
}

/// One timed run of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Nanoseconds from entering KVM to the halt, exits to this program included.
    pub nanoseconds: u64,
    /// Exits to user space seen, the halt not counted.
    pub exits: u64,
    /// What KVM itself counted meanwhile, where it does; its exits include the halt.
    pub counts: Option<Counts>,
}

/// A machine ready to run the programs of [`crate::kvm::guest_code`]. Fields are dropped in this order: the
/// processor, the machine, then its memory.
#[derive(Debug)]
pub struct Machine {
    counters: Option<Counters>,
    processor: VcpuFd,
    _machine: VmFd,
    _memory: Mapping,
    _alarm: Alarm,
}

impl Machine {
    /// Makes the machine: 64-bit mode, paging on, interrupts off.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] naming the step KVM refused.
    pub fn new(kvm: &Kvm) -> Result<Self, ProbeError> {
        let refused = |step: &'static str| {
            move |error: kvm_ioctls::Error| ProbeError::kernel(step, io::Error::from_raw_os_error(error.errno()))
        };
        let mut memory = Mapping::new(MEMORY_BYTES, PageKind::Small)
            .map_err(|error| ProbeError::kernel("give the guest 64 KiB", error))?;
        load(memory.words_mut());
        let machine = kvm.create_vm().map_err(refused("create a virtual machine"))?;
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: 0,
            memory_size: MEMORY_BYTES as u64,
            userspace_addr: memory.start().addr() as u64,
        };
        // SAFETY: the region is a live mapping of this size, owned by the returned value and dropped after the machine.
        unsafe { machine.set_user_memory_region(region) }.map_err(refused("take the guest's memory"))?;
        let processor = machine.create_vcpu(0).map_err(refused("create a virtual processor"))?;
        // 64-bit mode is only accepted from a processor whose CPUID shows it.
        let features = kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES).map_err(refused("tell its CPUID leaves"))?;
        processor.set_cpuid2(&features).map_err(refused("take CPUID leaves"))?;
        enter_long_mode(&processor).map_err(refused("put the processor in 64-bit mode"))?;
        let alarm =
            Alarm::every(Duration::from_millis(250)).map_err(|error| ProbeError::kernel("start a timer", error))?;
        Ok(Self { counters: Counters::open(&processor), processor, _machine: machine, _memory: memory, _alarm: alarm })
    }

    /// Runs a program for a number of iterations, at least one.
    ///
    /// # Errors
    /// [`ProbeError::Guest`] when the guest stops in any other way than by halting, does not halt within a second,
    /// or exits another number of times than its program says.
    pub fn run(&mut self, exit: Exit, exits_per_iteration: u64, iterations: u64) -> Result<Run, ProbeError> {
        let registers = kvm_regs {
            rip: address(exit, exits_per_iteration),
            rsi: iterations.max(1),
            rflags: 2,
            ..kvm_regs::default()
        };
        self.processor.set_regs(&registers).map_err(|error| {
            ProbeError::kernel("set the guest's registers", io::Error::from_raw_os_error(error.errno()))
        })?;
        let mut exits = 0;
        let before = self.counters.as_ref().and_then(Counters::read);
        let begin = clock::nanoseconds();
        let stopped = loop {
            match self.processor.run() {
                Ok(VcpuExit::IoOut(..)) => exits += 1,
                Ok(VcpuExit::Hlt) => break None,
                Ok(other) => break Some(format!("{other:?}")),
                Err(error) if error.errno() == libc::EINTR => {
                    if clock::nanoseconds().saturating_sub(begin) > RUN_LIMIT_NANOSECONDS {
                        break Some("no halt within a second".to_owned());
                    }
                }
                Err(error) => break Some(error.to_string()),
            }
        };
        let nanoseconds = clock::nanoseconds().saturating_sub(begin);
        let expected = if exit == Exit::UserSpace { exits_per_iteration.saturating_mul(iterations.max(1)) } else { 0 };
        match stopped {
            None if exits == expected => {
                let after = self.counters.as_ref().and_then(Counters::read);
                let counts = before.zip(after).map(|(before, after)| after.since(before));
                Ok(Run { nanoseconds, exits, counts })
            }
            None => Err(ProbeError::Guest { exit: format!("a halt, where {expected} exits were due,"), exits }),
            Some(exit) => Err(ProbeError::Guest { exit, exits }),
        }
    }
}

/// Flat segments, paging through the tables the guest's memory holds (AMD64 manual volume 2, 14.8: long mode).
fn enter_long_mode(processor: &VcpuFd) -> Result<(), kvm_ioctls::Error> {
    const CR0_PROTECTED_PAGED: u64 = (1 << 31) | (1 << 5) | (1 << 4) | 1;
    const CR4_PHYSICAL_ADDRESS_EXTENSION: u64 = 1 << 5;
    const EFER_LONG_MODE_ENABLED_ACTIVE: u64 = (1 << 8) | (1 << 10);
    let code = kvm_segment {
        base: 0,
        limit: 0xffff_ffff,
        selector: 8,
        type_: 11,
        present: 1,
        s: 1,
        l: 1,
        g: 1,
        ..kvm_segment::default()
    };
    let data = kvm_segment { selector: 16, type_: 3, l: 0, db: 1, ..code };
    let mut special = processor.get_sregs()?;
    special.cs = code;
    (special.ds, special.es, special.ss, special.fs, special.gs) = (data, data, data, data, data);
    special.cr3 = PAGE_TABLE;
    special.cr4 = CR4_PHYSICAL_ADDRESS_EXTENSION;
    special.cr0 = CR0_PROTECTED_PAGED;
    special.efer = EFER_LONG_MODE_ENABLED_ACTIVE;
    processor.set_sregs(&special)
}
