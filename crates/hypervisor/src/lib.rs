//! libvirt and the guest agent behind one trait.
//!
//! [`Hypervisor`] is what the rest of nearmetal sees. Two bodies stand behind it:
//! - [`Libvirt`] asks the helper process `nearmetal-libvirt`, the only program here that links libvirt. nearmetal
//!   itself therefore starts, and its read-only commands work, where libvirt is not installed.
//! - [`Fake`] keeps domains in memory, records every call and fails where a test tells it to.
//!
//! Both implement [`Transport`], one request in and one reply out; the trait is written once on top of it
//! (`client.rs`), so that waiting for a shutdown and judging replies are the same code in tests and in life.
//! [`agent`] holds what is done inside a guest.

pub mod agent;
mod client;
mod error;
mod fake;
mod hypervisor;
mod libvirt;
mod lines;
pub mod protocol;
mod serve;
mod types;

pub use client::Transport;
pub use error::{HypervisorError, LOCAL_PROFILE, allow_in_profile};
pub use fake::{Effect, Fake, PinTarget};
pub use hypervisor::Hypervisor;
pub use libvirt::{Events, Libvirt};
pub use serve::{Served, serve, write_event};
pub use types::{
    Definition, DomainEvent, DomainState, DomainSummary, EventKind, Nvram, PassedFile, PauseReason, Scope,
    ShutdownMode, Versions,
};
