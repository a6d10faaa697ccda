//! Kernel and KVM of the host.

pub(crate) mod command_line_near_limit;
pub(crate) mod kvm_hw_accel_in_use;
pub(crate) mod mitigations_reported_not_disabled;
