//! PCI, SR-IOV, VFIO.

pub(crate) mod intremap_no_unsafe_interrupts;
pub(crate) mod iommu_enabled;
pub(crate) mod iommu_identity_for_host_devices;
pub(crate) mod nvme_passthrough_choice;
pub(crate) mod pci_device_numa_local;
pub(crate) mod pcie_link_full;
pub(crate) mod sriov_vfs_sized;
pub(crate) mod vfio_driver_bound;
pub(crate) mod vfio_guest_hugepage_backed;
