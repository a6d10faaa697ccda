//! Processors of the host.

pub(crate) mod cpufreq_governor_performance;
pub(crate) mod smt_policy_for_class;
pub(crate) mod vcpu_overcommit_ratio;
