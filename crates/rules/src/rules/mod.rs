//! The rules: one file each, one folder a layer.

pub(crate) mod block;
pub(crate) mod domain_cpu;
pub(crate) mod domain_disk;
pub(crate) mod domain_memory;
pub(crate) mod domain_net;
pub(crate) mod guest;
pub(crate) mod host_cpu;
pub(crate) mod host_kernel;
pub(crate) mod image;
pub(crate) mod memory;
pub(crate) mod net;
pub(crate) mod numa;
pub(crate) mod pci;

use nearmetal_place::WorkloadClass;

/// Every class: what a rule about the host has, and a rule about any domain.
pub(crate) const ALL: [WorkloadClass; 6] = WorkloadClass::ALL;
