//! Documents the rules rest on, named as a reader finds them.

pub(crate) const LIBVIRT_CPU_TUNING: &str = "libvirt, Domain XML format, \"CPU Tuning\"";
pub(crate) const LIBVIRT_NUMA_TUNING: &str = "libvirt, Domain XML format, \"NUMA Node Tuning\"";
pub(crate) const LIBVIRT_DISKS: &str = "libvirt, Domain XML format, \"Hard drives, floppy disks, CDROMs\"";
pub(crate) const LIBVIRT_HOOKS: &str = "libvirt, Hooks for specific system management, \"qemu\"";
pub(crate) const LIBVIRT_IOTHREADS: &str = "libvirt, Domain XML format, \"IOThreads Allocation\"";
pub(crate) const KERNEL_GUEST_HALTPOLL: &str = "Linux, Documentation/virt/guest-halt-polling.rst";
pub(crate) const KERNEL_HUGETLB: &str = "Linux, Documentation/admin-guide/mm/hugetlbpage.rst";
pub(crate) const KERNEL_IO_URING: &str = "Linux, Documentation/admin-guide/sysctl/kernel.rst, io_uring_disabled";
pub(crate) const KERNEL_PCI_NODE: &str = "Linux, Documentation/ABI/testing/sysfs-bus-pci, numa_node";
pub(crate) const KERNEL_TOPOLOGY: &str = "Linux, Documentation/admin-guide/cputopology.rst";
pub(crate) const QEMU_QUEUES: &str = "QEMU, hw/core/machine.c: num-queues is one per vCPU since machine type 5.2";
