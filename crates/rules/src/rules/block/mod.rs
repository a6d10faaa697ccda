//! Block devices of the host.

pub(crate) mod backing_block_device;
pub(crate) mod blk_elevator_param_obsolete;
pub(crate) mod blk_scheduler_none_fast;
