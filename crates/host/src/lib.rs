//! The only gate to /sys and /proc, and the model of a host.
//!
//! [`HostFs`] is the gate, [`Host`] the model, [`Host::read`] fills one from the other. [`guests`] reads single running
//! guests for the read-back. [`synthetic`] builds hosts that nobody owns, for tests.

mod errors;
mod facts;
pub mod files;
pub mod guests;
mod host_fs;
pub mod invariants;
mod model;
mod parse;
mod read;
mod summary;
pub mod synthetic;
pub mod text;
pub mod tree_text;

pub use errors::{ReadError, WriteError};
pub use host_fs::HostFs;
pub use model::{
    BlockDevice, Cache, CacheKind, Core, CoreKind, CpuGroup, GuestProcess, Host, HugepagePool, NetworkInterface,
    NumaNode, PciDevice, Processor, Residency, SriovState, System, Thread, ThreadRole, Unreadable,
};
pub use parse::Malformed;
pub use read::{DiskCounters, disk_counters};
pub use summary::{Document, SCHEMA, Summary};
