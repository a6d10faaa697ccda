//! One file and one function per command.

pub(crate) mod at;
pub(crate) mod bind;
pub(crate) mod capture;
pub(crate) mod count;
pub(crate) mod file_system;
pub(crate) mod kvm;
pub(crate) mod memory_bandwidth;
pub(crate) mod memory_latency;
pub(crate) mod memory_work;
pub(crate) mod see;
pub(crate) mod see_binding;
