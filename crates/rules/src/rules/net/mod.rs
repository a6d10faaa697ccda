//! Networks of the host.

pub(crate) mod net_bridge_nf_off;
pub(crate) mod net_mtu_consistent;
pub(crate) mod net_nic_offloads_on;
pub(crate) mod net_nic_queues_local;
pub(crate) mod net_vhost_module;
pub(crate) mod ovs_dpdk_pmd_local_isolated;
pub(crate) mod ovs_vhostuserclient;
