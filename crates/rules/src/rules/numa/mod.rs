//! NUMA placement.

pub(crate) mod memory_on_memoryless_node;
pub(crate) mod numa_autobalancing_off_when_pinned;
pub(crate) mod numa_firmware_nps_llc;
pub(crate) mod numa_guest_topology_when_wide;
pub(crate) mod numa_llc_ccx_alignment;
pub(crate) mod numa_memory_adds_up;
pub(crate) mod numa_memory_local_at_runtime;
pub(crate) mod numa_numatune_strict;
pub(crate) mod numa_vm_fits_node;
pub(crate) mod numad_beside_static_pins;
