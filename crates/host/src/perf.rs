//! The processor's own counters, by perf_event_open(2): instructions and cycles, and how far loads went that no cache answered.
//!
//! Generic events only (perf_event_open(2), `PERF_TYPE_HARDWARE` and `PERF_TYPE_HW_CACHE`): the kernel knows what each
//! processor calls them, and refuses those it has no event for. What is refused is unknown, never 0.

use std::io;

use perf_event::events::{Cache, CacheOp, CacheResult, Event, Hardware, WhichCache};
use perf_event::{Builder, Counter};

use crate::HostFs;

/// Who may count, and what: Documentation/admin-guide/sysctl/kernel.rst.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// What a processor counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PerfEvent {
    /// Instructions that were retired.
    Instructions,
    /// Cycles in which the processor was not halted.
    Cycles,
    /// Loads that memory answered: of any node or of the own, see [`crate::NodeLoads`].
    NodeLoads,
    /// Those that another node's memory answered.
    NodeLoadMisses,
    /// Loads that the last-level cache did not answer.
    LlcLoadMisses,
    /// Loads whose translation took a walk of the page tables.
    DtlbLoadMisses,
}

impl PerfEvent {
    /// perf's name of it (perf-list(1)).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::NodeLoads => "node-loads",
            Self::NodeLoadMisses => "node-load-misses",
            Self::LlcLoadMisses => "LLC-load-misses",
            Self::DtlbLoadMisses => "dTLB-load-misses",
        }
    }

    fn event(self) -> Event {
        let load = |which, result| Event::Cache(Cache { which, operation: CacheOp::READ, result });
        match self {
            Self::Instructions => Event::Hardware(Hardware::INSTRUCTIONS),
            Self::Cycles => Event::Hardware(Hardware::CPU_CYCLES),
            Self::NodeLoads => load(WhichCache::NODE, CacheResult::ACCESS),
            Self::NodeLoadMisses => load(WhichCache::NODE, CacheResult::MISS),
            Self::LlcLoadMisses => load(WhichCache::LL, CacheResult::MISS),
            Self::DtlbLoadMisses => load(WhichCache::DTLB, CacheResult::MISS),
        }
    }
}

/// Whose events are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfScope {
    /// A thread's, wherever it runs.
    Thread(u32),
    /// A PU's, whoever runs there.
    Pu(u32),
}

/// On which side of a VM entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerfSide {
    /// On both.
    Both,
    /// In guests alone (`exclude_host`).
    Guest,
}

/// One counter, which counts from when it was opened.
#[derive(Debug)]
pub struct PerfCounter {
    event: PerfEvent,
    counter: Counter,
}

/// Why something is not counted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PerfError {
    /// This processor has no such event, or nobody shows it to this machine.
    #[error(
        "the processor does not count {event}; if this machine is itself a guest, its host has to give it a PMU (libvirt: <pmu state='on'/>)"
    )]
    Absent {
        /// perf's name.
        event: &'static str,
    },
    /// Only others may.
    #[error(
        "the kernel lets this user count no {event} (kernel.perf_event_paranoid is {paranoid}): run this as root, or give it CAP_PERFMON"
    )]
    NotPermitted {
        /// perf's name.
        event: &'static str,
        /// The setting.
        paranoid: String,
    },
    /// It was never scheduled: others hold the processor's counters.
    #[error("{event} found no free counter of the processor: another program holds them all")]
    NoRoom {
        /// perf's name.
        event: &'static str,
    },
    /// A capture has no processor.
    #[error("a capture counts no {event}")]
    Capture {
        /// perf's name.
        event: &'static str,
    },
    /// Anything else.
    #[error("{event} cannot be counted: {why}")]
    Other {
        /// perf's name.
        event: &'static str,
        /// The kernel's word.
        why: String,
    },
}

impl HostFs {
    /// Begins to count.
    ///
    /// # Errors
    /// The processor has no such event, this user may not count it, or this is no live machine.
    pub fn count(&self, event: PerfEvent, scope: PerfScope, side: PerfSide) -> Result<PerfCounter, PerfError> {
        let name = event.name();
        if !self.is_live() {
            return Err(PerfError::Capture { event: name });
        }
        let failed = |error: io::Error| {
            let paranoid = || self.read(PARANOID).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned());
            judged(event, &error, paranoid)
        };
        let mut builder = match scope {
            PerfScope::Thread(id) => Builder::new().observe_pid(i32::try_from(id).unwrap_or(i32::MAX)).any_cpu(),
            PerfScope::Pu(pu) => Builder::new().any_pid().one_cpu(pu as usize),
        }
        .kind(event.event());
        let attributes = builder.attrs_mut();
        attributes.set_exclude_kernel(0);
        attributes.set_exclude_hv(0);
        attributes.set_exclude_host(u64::from(side == PerfSide::Guest));
        let mut counter = builder.build().map_err(failed)?;
        counter.enable().map_err(failed)?;
        Ok(PerfCounter { event, counter })
    }
}

fn judged(event: PerfEvent, error: &io::Error, paranoid: impl FnOnce() -> String) -> PerfError {
    let (event, number) = (event.name(), error.raw_os_error().map(rustix::io::Errno::from_raw_os_error));
    match number {
        // perf_event_open(2): which of them depends on how the kernel finds out.
        Some(
            rustix::io::Errno::NOENT
            | rustix::io::Errno::OPNOTSUPP
            | rustix::io::Errno::NODEV
            | rustix::io::Errno::INVAL
            | rustix::io::Errno::NOSYS,
        ) => PerfError::Absent { event },
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => {
            PerfError::NotPermitted { event, paranoid: paranoid() }
        }
        _ => PerfError::Other { event, why: error.to_string() },
    }
}

impl PerfCounter {
    /// How many there were since it was opened. Where the processor has fewer counters than are asked for, they take turns,
    /// and the figure is what the whole time would have given (perf_event_open(2), `time_running`).
    ///
    /// # Errors
    /// It never had a turn, or cannot be read.
    pub fn read(&mut self) -> Result<u64, PerfError> {
        let event = self.event.name();
        let read = self.counter.read_count_and_time();
        let read = read.map_err(|error| PerfError::Other { event, why: error.to_string() })?;
        scaled(read.count, read.time_enabled, read.time_running).ok_or(PerfError::NoRoom { event })
    }
}

/// A count of part of the time, as of all of it; `None` for no part of some time.
fn scaled(count: u64, enabled: u64, running: u64) -> Option<u64> {
    match (enabled, running) {
        (0, _) => Some(count),
        (_, 0) => None,
        _ => u64::try_from(u128::from(count) * u128::from(enabled) / u128::from(running)).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTree;

    #[test]
    fn what_took_turns_is_scaled_and_what_had_none_is_unknown() {
        assert_eq!(scaled(100, 50, 50), Some(100));
        assert_eq!(scaled(100, 200, 50), Some(400));
        assert_eq!(scaled(0, 200, 0), None, "not 0");
        assert_eq!(scaled(7, 0, 0), Some(7), "a thread that did not run");
        assert_eq!(scaled(u64::MAX, 2, 1), None);
    }

    #[test]
    fn a_refusal_names_its_remedy() {
        let judged = |number: rustix::io::Errno| {
            let error = io::Error::from_raw_os_error(number.raw_os_error());
            judged(PerfEvent::NodeLoads, &error, || "3".to_owned()).to_string()
        };
        for (number, words) in [
            (rustix::io::Errno::NOENT, "does not count node-loads; if this machine is itself a guest"),
            (rustix::io::Errno::OPNOTSUPP, "<pmu state='on'/>"),
            (rustix::io::Errno::ACCESS, "perf_event_paranoid is 3): run this as root"),
            (rustix::io::Errno::MFILE, "node-loads cannot be counted: Too many open files"),
        ] {
            assert!(judged(number).contains(words), "{}", judged(number));
        }
    }

    #[test]
    fn a_capture_counts_nothing() {
        let fs = HostFs::of_tree(MemoryTree::new(), "a capture");
        let error = fs.count(PerfEvent::Cycles, PerfScope::Pu(0), PerfSide::Both).unwrap_err();
        assert_eq!(error, PerfError::Capture { event: "cycles" });
    }
}
