//! Images behind the disks of a domain.

pub(crate) mod image_backing_chain_short;
pub(crate) mod image_cluster_extended_l2;
pub(crate) mod image_compat_v3;
pub(crate) mod image_no_internal_snapshots;
pub(crate) mod image_partition_aligned;
pub(crate) mod image_preallocated;
pub(crate) mod image_qcow2_l2_cache;
pub(crate) mod image_raw_or_tuned_qcow2;
