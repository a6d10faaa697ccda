//! Processors of the host.

pub(crate) mod vcpu_overcommit_ratio;
