//! Network interfaces of a domain.

pub(crate) mod net_bandwidth_cap_known;
pub(crate) mod net_driver_vhost;
pub(crate) mod net_guest_offloads_kept;
pub(crate) mod net_model_virtio;
pub(crate) mod net_mrgrxbuf_dpdk;
pub(crate) mod net_not_user_mode;
pub(crate) mod net_packed_optional;
pub(crate) mod net_queues_multi;
pub(crate) mod net_ring_size_nfv;
pub(crate) mod net_sriov_for_heavy;
pub(crate) mod net_vdpa_hardware;
