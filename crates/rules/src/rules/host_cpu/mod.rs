//! Processors of the host.

pub(crate) mod cpufreq_governor_performance;
pub(crate) mod cstate_latency_capped;
pub(crate) mod host_runqueue_and_steal_low;
pub(crate) mod smt_policy_for_class;
pub(crate) mod thermal_throttle_absent;
pub(crate) mod turbo_boost_enabled;
pub(crate) mod vcpu_overcommit_ratio;
