//! The only gate to /sys and /proc, and the model of a host.
//!
//! [`HostFs`] is the gate, [`Host`] the model, [`Host::read`] fills one from the other. [`guests`] reads single running
//! guests for the read-back. [`synthetic`] builds hosts that nobody owns, for tests.

mod accesses;
pub mod assignable;
pub mod diff;
mod errors;
mod facts;
mod file_locks;
pub mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod guests;
mod host_fs;
pub mod images;
pub mod invariants;
mod lab_counters;
mod lab_time_model;
pub mod ledger;
mod memory_tree;
mod model;
mod node_loads;
mod occupancy;
mod online;
mod parse;
mod perf;
mod piped;
mod read;
mod record;
mod summary;
pub mod synthetic;
pub mod text;
pub mod tree_text;
mod uevents;

pub use accesses::{AccessError, GuestAccesses, VcpuAccesses, Went, guest_accesses};
pub use errors::{ReadError, WriteError};
pub use file_locks::{FileLock, file_locks};
pub use host_fs::{HostFs, TestKernel};
pub use lab_counters::{LAB_VENDOR, LabCountersError, LabWatch};
pub use lab_time_model::TimeModelError;
pub use memory_tree::{Entry, LARGEST_FILE, Limits, MemoryTree, TreeError};
pub use model::{
    AccessControl, BlockDevice, BlockQueue, Boost, Cache, CacheKind, Core, CoreKind, CpuGroup, CpuQuota, CpuTimeGroup,
    Cpuset, DirtyLimit, DpdkPort, FrequencyPolicy, GuestProcess, Host, HugepagePool, HugepageTotal, IdleState,
    IdleStates, ImageFile, Interrupt, MemoryAccess, MemoryGroup, MemorySideCache, Mount, NetworkInterface, NumaNode,
    Offload, OpenVswitch, PciBar, PciDevice, PciLink, Processor, ProcessorTime, Residency, Scheduling,
    SchedulingPolicy, Setting, SriovState, SwapArea, Sysctl, System, Thread, ThreadRole, Throttling, TunedProfile,
    Tuning, Unreadable, VirtualFunction,
};
pub use node_loads::NodeLoads;
pub use occupancy::{Occupancy, RunningGuest, Vcpus};
pub use online::{PusChanged, online_pus, same_pus};
pub use parse::Malformed;
pub use perf::{PerfCounter, PerfError, PerfEvent, PerfScope, PerfSide};
pub use piped::Piped;
pub use read::{DiskCounters, disk_counters};
pub use summary::{Document, SCHEMA, Summary};
pub use uevents::{Heard, Uevent, UeventError, Uevents};
