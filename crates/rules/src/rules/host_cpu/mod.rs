//! Processors of the host.

pub(crate) mod cpufreq_governor_performance;
pub(crate) mod vcpu_overcommit_ratio;
