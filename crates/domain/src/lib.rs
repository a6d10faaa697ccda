//! libvirt domain XML, read and edited in place.
//!
//! A [`DomainXml`] is a text. Reading goes through a tree; every setter turns into replacements of byte ranges, so
//! whatever nearmetal does not know (elements, comments, namespaces such as `qemu:commandline`, quoting, white space)
//! stays as it was. One libvirt element, one file under `element/`.

mod canonical;
mod definition_edit;
mod diff;
mod document;
mod edit;
mod edit_as_data;
mod element;
mod error;
mod facts;
mod fragment;
mod limits;
mod new_domain;
mod order;
mod place;
mod tag;
mod tree;

pub use canonical::{Difference, first_difference, same_after_canonicalisation};
pub use definition_edit::DefinitionEdit;
pub use diff::{DiffKind, DiffLine, diff, render_diff};
pub use document::DomainXml;
pub use element::boot::BootFacts;
pub use element::cells::{Cell, CellFacts};
pub use element::clock::TimerFacts;
pub use element::cpu::{CpuFacts, TopologyFacts};
pub use element::disk::{DiskFacts, DriverFacts};
pub use element::disk_driver::{DiskCache, DiskIo, DriverOptions};
pub use element::disk_source::{DiskSource, PassedBacking};
pub use element::features::{FeatureFacts, HypervFacts};
pub use element::functions::{Function, FunctionFacts, NetworkFunction};
pub use element::interface::InterfaceFacts;
pub use element::interface_driver::{InterfaceOptions, OFFLOADS};
pub use element::iothreads::IothreadFacts;
pub use element::memory_backing::HugepageFacts;
pub use element::memory_policy::MemoryPolicyFacts;
pub use element::metadata::NAMESPACE;
pub use element::numatune::{MemnodeFacts, NumatuneFacts};
pub use element::peripherals::PeripheralFacts;
pub use element::scheduling::{SchedulerFacts, SchedulingFacts};
pub use element::vcpu::VcpuFacts;
pub use error::{DomainError, Position};
pub use facts::DomainFacts;
pub use new_domain::{
    DiskBus, Firmware, GuestSystem, ImageFormat, NetworkBackend, NewDisk, NewDiskSource, NewDomain, NewInterface,
    NewInterfaceSource,
};
pub use order::before as children_before;
