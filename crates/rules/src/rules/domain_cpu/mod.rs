//! CPUs of a domain.

pub(crate) mod cpu_cache_passthrough;
pub(crate) mod cpu_host_passthrough;
pub(crate) mod cpu_time_as_defined;
pub(crate) mod cpu_topology_honest;
pub(crate) mod emulator_pin_separate;
pub(crate) mod guest_l3_wider_than_host;
pub(crate) mod hyperv_avic_compatible;
pub(crate) mod hyperv_enlightenments;
pub(crate) mod iothread_pin;
pub(crate) mod kvm_hint_dedicated;
pub(crate) mod kvm_poll_control;
pub(crate) mod kvm_pv_features_kept;
pub(crate) mod machine_type_current_q35;
pub(crate) mod pin_on_offline_cpu;
pub(crate) mod pins_as_defined;
pub(crate) mod pmu_by_class;
pub(crate) mod threads_scheduled_as_defined;
pub(crate) mod timers_hpet_off;
pub(crate) mod tsc_invariant_when_static;
pub(crate) mod two_domains_on_one_pu;
pub(crate) mod unused_emulated_devices_removed;
pub(crate) mod vcpu_no_cfs_quota;
pub(crate) mod vcpu_pin_1to1;
pub(crate) mod vcpu_pin_sibling_pairs;
pub(crate) mod vcpu_right_size;
pub(crate) mod vcpusched_fifo_rt;
