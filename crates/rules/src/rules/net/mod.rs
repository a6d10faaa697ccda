//! Networks of the host.

pub(crate) mod net_vhost_module;
pub(crate) mod ovs_vhostuserclient;
