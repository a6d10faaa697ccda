//! The inside of a guest, read as any machine is. No rule here has cures: nearmetal changes nothing in there.

pub(crate) mod guest_clocksource;
pub(crate) mod guest_haltpoll_governor;
pub(crate) mod guest_mq_enabled;
pub(crate) mod guest_nmi_watchdog_off;
pub(crate) mod guest_rt_isolation;
pub(crate) mod guest_scheduler_none;
pub(crate) mod guest_steal_low;
pub(crate) mod guest_thp;
pub(crate) mod guest_tuned_profile;
pub(crate) mod guest_virtio_drivers;
