//! Kernel and KVM of the host.

pub(crate) mod command_line_near_limit;
pub(crate) mod cpu_isolation_for_dedicated_vcpus;
pub(crate) mod host_clocksource_tsc;
pub(crate) mod irq_affinity_off_isolated;
pub(crate) mod kernel_debug_options_off;
pub(crate) mod kvm_apicv_avic_active;
pub(crate) mod kvm_halt_poll_ns_by_class;
pub(crate) mod kvm_hw_accel_in_use;
pub(crate) mod kvm_l1d_flush_known;
pub(crate) mod kvm_nested_paging_on;
pub(crate) mod kvm_nx_huge_pages_known;
pub(crate) mod kvm_rt_module_params;
pub(crate) mod kvm_runs_on_processor;
pub(crate) mod lockup_watchdogs_off_latency;
pub(crate) mod mitigations_reported_not_disabled;
pub(crate) mod nohz_full_rcu_nocbs_on_isolated;
pub(crate) mod rt_throttle_off_for_fifo_vcpus;
pub(crate) mod split_lock_policy_known;
pub(crate) mod tuned_profile_matches_role;
pub(crate) mod version_floor_for_features;
pub(crate) mod workqueue_cpumask_housekeeping;
