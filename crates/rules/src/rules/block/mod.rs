//! Block devices of the host.

pub(crate) mod backing_block_device;
pub(crate) mod blk_elevator_param_obsolete;
pub(crate) mod blk_scheduler_none_fast;
pub(crate) mod fs_btrfs_nocow;
pub(crate) mod fs_image_store_type;
pub(crate) mod fs_o_direct_capable;
