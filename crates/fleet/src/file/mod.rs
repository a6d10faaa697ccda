//! The fleet file: which VMs somebody wants, and on which hosts they may go. TOML in, plain data out; no I/O.
//!
//! ```
//! use nearmetal_fleet::file::FleetFile;
//! let text = "[[host]]\nname = \"alpha\"\nlocal = true\n\n[[vm]]\nname = \"db\"\nvcpus = 4\nmemory = \"16 GB\"\n";
//! let errors = FleetFile::parse("fleet.toml", text).unwrap_err();
//! assert!(errors.to_string().starts_with("fleet.toml:8:10: VM `db`: `memory` is \"16 GB\""));
//! ```
//!
//! [`FleetFile::parse`] reads it and tells everything that is wrong at once, with line and column. [`assemble`] brings it
//! together with the hosts as they are now. [`init`] writes one from domains that exist. `keys` describes every key once:
//! for the parser, for its suggestions, and for the reference page. [`read_text`] and [`Section`] read any file of this
//! manner.

mod assemble;
mod devices;
mod disks;
mod entry;
mod error;
mod groups;
mod hosts;
mod init;
mod keys;
mod now;
mod pairs;
mod parse;
mod running;
mod section;
mod summary;
mod vms;

pub use assemble::{AssembleError, AssembleErrors, Assembled, KnownHost, RunningVm, assemble};
pub use devices::DemandOf;
pub use entry::{
    DiskBus, DiskEntry, DiskFormat, DiskSource, Firmware, FleetFile, HostEntry, HostReach, NicAttach, NicEntry,
    NicKind, VmEntry,
};
pub use error::{FileErrors, FileProblem};
pub use init::{FoundDomain, FoundHost, amount, init, quoted};
pub use keys::{Key, REQUIRED, TABLES, Table, key};
pub use pairs::NumberPair;
pub use parse::read_text;
pub use running::Stay;
pub use section::{At, Notes, Section, nearest};
pub use summary::summary;

/// A commented fleet file that says a little of everything; it parses.
pub const EXAMPLE: &str = include_str!("example.toml");
