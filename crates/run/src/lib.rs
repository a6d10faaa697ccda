//! One guest for one job: it takes what it was given, lives as long as the program that asked for it, and leaves nothing.
//!
//! [`flavour`] reads what guests there are to choose from, [`given`] what this process may use of the machine. The
//! [`reservation`]s of runs that live keep two of them off each other's PUs; [`slice`] chooses among what is left, with
//! the planner, and a PCI [`function`] where the flavour has one; memory that was [`promised`] to others is not left. What a guest
//! [`needs`] beside it is looked at before. [`definition`] makes the guest, [`delta`] the disk that it writes to, [`seed`] what
//! cloud-init is told. [`course`] takes it from its start to its end, with its command's [`output`], and its [`console`] can be
//! followed; files that it was [`handed`] are read back. What a run that was killed could not give back, [`recover`] does for it;
//! [`qemu`] ends a guest where libvirt cannot. A user without root has a [`session`], and with it all that the guest costs is
//! [`charged`] to the job; what takes root, a [`service`] does for him. An [`offer`] tells a batch system what a host has for runs.

pub mod accounts;
pub mod charged;
pub mod console;
pub mod course;
pub mod definition;
pub mod delta;
mod error;
pub mod event;
pub mod flavour;
pub mod function;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod given;
pub mod handed;
pub mod needs;
pub mod offer;
pub mod output;
pub mod pools;
mod process;
pub mod promised;
pub mod qemu;
pub mod qemu_log;
pub mod recover;
pub mod reservation;
pub mod seed;
pub mod service;
pub mod session;
pub mod slice;

pub use error::RunError;
