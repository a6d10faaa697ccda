//! One libvirt element, one file: what it says, and how it is set.

pub(crate) mod boot;
pub(crate) mod cells;
pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod cputune;
pub(crate) mod devices;
pub(crate) mod disk;
pub(crate) mod disk_driver;
pub(crate) mod disk_source;
pub(crate) mod features;
pub(crate) mod functions;
pub(crate) mod hostdev;
pub(crate) mod identity;
pub(crate) mod interface;
pub(crate) mod interface_driver;
pub(crate) mod iothreads;
pub(crate) mod memory;
pub(crate) mod memory_backing;
pub(crate) mod memory_policy;
pub(crate) mod metadata;
pub(crate) mod numatune;
pub(crate) mod pci_layout;
pub(crate) mod peripherals;
pub(crate) mod scheduling;
mod size;
pub(crate) mod vcpu;
