//! A server in software: sockets, NUMA nodes with distances, an IOMMU, and devices with virtual functions, in which a
//! stock Debian runs with real libvirt, real QEMU and real KVM (nested under emulation).
//!
//! [`machine`] says what is emulated, [`image`] what runs in it, [`Lab`] boots it and is the way in.
//! Its clock is emulated: it proves decisions and instruction paths, never speed.

pub mod domains;
pub mod image;
pub mod machine;

mod boot;
mod clock;
mod console;
mod copy;
mod counting;
mod error;
mod exec;
mod hang;
mod identity;
mod keys;
mod lab;
mod launch;
mod lock;
mod places;
mod progress;
mod record;
mod seed;
mod ssh;
mod stop;
mod sweep;
mod tools;
mod trash;

pub use error::LabError;
pub use exec::{Command, ExecOutput, Input};
pub use identity::LabName;
pub use lab::{Lab, UpOptions};
pub use places::Places;
pub use progress::{Progress, Silent};
pub use record::{BootTimes, LabState, LabStatus};
pub use stop::Stopped;
pub use sweep::{purge, status, sweep};
