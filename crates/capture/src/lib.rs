//! Hosts that are not this one: captures written and read, hwloc's captures and XML, libvirt's XML.
//!
//! Every source becomes files of /sys and /proc behind [`nearmetal_host::HostFs`], so that one set of readers makes the
//! model of all of them. What another format does not say has no file, and is unknown in the model.
//!
//! | To get | Call |
//! |---|---|
//! | a host from a path: directory, archive, hwloc XML | [`open`] |
//! | a host from bytes, as they come over the network | [`from_bytes`] |
//! | a capture of a machine | [`collect`], then [`write`] |
//! | a host from libvirt's capabilities and node devices | [`from_libvirt`] |
//! | what confines a libvirt's guests | [`security_models`] |
//!
//! A crate of its own for its decompressors, which the planner and the reports must not carry.

mod archive;
mod collect;
mod compression;
mod error;
mod hwloc;
mod libvirt;
mod mask;
mod open;
mod sysfs;
mod write;
mod xml;

pub use collect::collect;
pub use error::CaptureError;
pub use libvirt::{LibvirtHost, SecurityModel, from_libvirt, security_models};
pub use open::{from_bytes, open};
pub use write::write;
