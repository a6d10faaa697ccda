//! Disks of a domain.

pub(crate) mod disk_bus_virtio;
pub(crate) mod disk_cache_none;
pub(crate) mod disk_detect_zeroes_off;
pub(crate) mod disk_discard_unmap;
pub(crate) mod disk_io_native_or_uring;
pub(crate) mod disk_ioeventfd_eventidx_default;
pub(crate) mod disk_iothread;
pub(crate) mod disk_iothread_polling;
pub(crate) mod disk_iothread_vq_mapping;
pub(crate) mod disk_iotune_known;
pub(crate) mod disk_queue_size_sane;
pub(crate) mod disk_queues_auto;
pub(crate) mod disk_scsi_single_controller;
pub(crate) mod disk_vhost_user_blk_for_extreme;
pub(crate) mod disk_write_through_flushed;
pub(crate) mod transient_overlay_left;
