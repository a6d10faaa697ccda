//! Memory of a domain.

pub(crate) mod balloon_holds_memory;
pub(crate) mod mem_allocation_immediate;
pub(crate) mod mem_balloon_by_class;
pub(crate) mod mem_guest_ram_below_limit_swap;
pub(crate) mod mem_hugepages;
pub(crate) mod mem_locked_with_hard_limit;
pub(crate) mod mem_nosharepages;
pub(crate) mod mem_shared_for_vhost_user;
