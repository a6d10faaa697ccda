//! Memory of the host.

pub(crate) mod guest_ram_huge_backed_coverage;
pub(crate) mod host_memory_reserve;
pub(crate) mod hugepages_uneven_over_nodes;
pub(crate) mod hugetlb_1g_for_large_guests;
pub(crate) mod hugetlb_pool_sized_per_node;
pub(crate) mod ksm_not_across_nodes;
pub(crate) mod ksm_off_for_performance;
pub(crate) mod memlock_limit_for_vfio;
pub(crate) mod memory_spread_flags_legacy;
pub(crate) mod no_memory_overcommit_dedicated;
pub(crate) mod qemu_not_swapped;
pub(crate) mod thp_defrag_policy;
pub(crate) mod thp_host_enabled;
