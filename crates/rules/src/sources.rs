//! Where rules come from, by the key they name.

/// One source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// Its key.
    pub key: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Where it is.
    pub site: &'static str,
}

const fn at(key: &'static str, title: &'static str, site: &'static str) -> Source {
    Source { key, title, site }
}

/// By key.
const SOURCES: &[Source] = &[
    at("bb-aio", "Proxmox storage: aio native, io_uring and threads", "Blockbridge knowledge base"),
    at("broadcom-nps", "NPS and CCX-as-NUMA advice for EPYC hosts (ESXi)", "Broadcom/VMware"),
    at("ch-754", "issue 754: huge pages with VFIO and virtiofs", "github.com/cloud-hypervisor/cloud-hypervisor"),
    at("fc-thp", "pull request 6003: THP for guest memory", "github.com/firecracker-microvm/firecracker"),
    at("hugedemo", "README of hugepagedemo", "github.com/evanj/hugepagedemo"),
    at("ibm-iot", "Disk I/O and IOThreads tuning for KVM", "IBM Documentation"),
    at("intel-thp", "THP for VMs, ChromeOS results", "Intel / ChromeOS"),
    at("k-blk", "ABI sysfs-block and block/switching-sched", "docs.kernel.org"),
    at("k-cgv2", "admin-guide/cgroup-v2", "docs.kernel.org"),
    at("k-cpu-abi", "ABI/testing sysfs-devices-system-cpu", "docs.kernel.org"),
    at("k-cpuid", "virt/kvm/x86/cpuid (KVM CPUID bits, hints)", "docs.kernel.org"),
    at("k-huge", "admin-guide/mm/hugetlbpage", "docs.kernel.org"),
    at("k-ice", "device_drivers/ethernet/intel/ice", "docs.kernel.org"),
    at("k-ksm", "admin-guide/mm/ksm", "docs.kernel.org"),
    at("k-l1tf", "admin-guide/hw-vuln/l1tf", "docs.kernel.org"),
    at("k-params", "admin-guide/kernel-parameters", "docs.kernel.org"),
    at("k-pci-abi", "ABI/testing sysfs-bus-pci", "docs.kernel.org"),
    at("k-pvipi", "commit 4180bf1b655a: PV IPIs", "Linux git"),
    at("k-sysctl", "admin-guide/sysctl/kernel and vm", "docs.kernel.org"),
    at("k-thp", "admin-guide/mm/transhuge", "docs.kernel.org"),
    at("k-tsc", "commit 7539b174aef4 (kvm guest: use TSC clocksource when invariant)", "Linux git"),
    at("kv-cpu", "KubeVirt: virtual hardware, CPU topology, emulator thread", "kubevirt.io user guide"),
    at("kv-disk", "KubeVirt: disks and volumes, IOThreads, block multi-queue", "kubevirt.io user guide"),
    at("kv-numa", "KubeVirt: NUMA, real time, dedicated CPUs", "kubevirt.io user guide"),
    at("lenovo-epyc", "lp1977: tuning EPYC servers", "lenovopress.lenovo.com"),
    at("lnvps", "pull request 352: iothreads", "LNVPS project, github.com"),
    at("lv-dom", "Domain XML format (formatdomain)", "libvirt.org"),
    at(
        "lv-iotmap",
        "patches and commit for <iothreads> virtqueue mapping (libvirt 10.0.0, QEMU 9.0)",
        "libvirt devel list / gitlab.com/libvirt",
    ),
    at("lv-rt", "Knowledge base: KVM real-time guests", "libvirt.org"),
    at("lxd-uring", "issues 10061 and 10064: io_uring cut-off", "github.com/canonical/lxd"),
    at("nova-cpu", "Nova admin: CPU topologies", "docs.openstack.org"),
    at("nova-huge", "Nova admin: huge pages", "docs.openstack.org"),
    at("nova-net", "Nova/Neutron: SR-IOV and network NUMA affinity", "docs.openstack.org"),
    at("nova-pci", "Nova admin: PCI passthrough", "docs.openstack.org"),
    at("obs-uring", "pull request 893: io_uring with iothread hang, QEMU 7.1.0", "github.com/openSUSE/obs-build"),
    at("okd-mq", "OKD/OpenShift Virtualization: multi-queue", "docs.okd.io"),
    at("ovs-dpdk", "OVS-DPDK performance guide", "docs.openvswitch.org"),
    at("ovs-vhu", "DPDK vHost user ports", "docs.openvswitch.org"),
    at("own", "general knowledge of the trade", "-"),
    at("pve-drive", "qemu-server: PVE/QemuServer Drive.pm (aio defaults)", "Proxmox source"),
    at("pve-pci", "Proxmox VE: PCI(e) passthrough", "pve.proxmox.com wiki"),
    at("pve-qm", "Proxmox VE: Qemu/KVM virtual machines", "pve.proxmox.com"),
    at("q-cpu", "QEMU / KVM CPU model configuration", "qemu.org docs (7.2)"),
    at("q-help", "QEMU 7.2: -device help, qom-get, query-block, query-memdev, query-iothreads", "qemu.org"),
    at("q-hyperv", "Hyper-V enlightenments (docs/system/i386/hyperv.rst)", "qemu.org docs"),
    at("q-iothread", "AioContext polling patches and commit texts (poll-max-ns)", "qemu-devel / QEMU git"),
    at("q-kvmpv", "Paravirtualized KVM features", "qemu.org docs"),
    at("q-pit", "hw/i386/kvm/i8254.c: lost_tick_policy and KVM_REINJECT_CONTROL", "QEMU source"),
    at("q-plug", "commit fc73548e444a: virtio-blk plug/unplug use", "QEMU git"),
    at(
        "rh-1gib",
        "Benchmarking transparent versus 1GiB static huge page performance in Linux VMs, 2021-04-27",
        "developers.redhat.com",
    ),
    at("rh-iotmap-db", "IOThread Virtqueue Mapping with database workloads, 2024-09-10", "developers.redhat.com"),
    at(
        "rh-iotmap1",
        "Scaling virtio-blk disk I/O with IOThread Virtqueue Mapping, 2024-09-05",
        "developers.redhat.com",
    ),
    at("rh-netlat", "RHEL 10: network latency tuning", "docs.redhat.com"),
    at("rh-numa", "RHEL 7 tuning guide 9: NUMA", "docs.redhat.com"),
    at("rh-ocp-iot", "OpenShift Virtualization: multiple IOThreads, 2025-06-23", "developers.redhat.com"),
    at("rh-ovsdrops", "OVS-DPDK packet drops, rx_queue_size/tx_queue_size", "docs.redhat.com / TripleO"),
    at("rh-pcinuma", "OpenStack NFV: PCI NUMA affinity policy", "docs.redhat.com"),
    at("rh-rhel10cache", "RHEL 10: disk cache modes and I/O tuning for VMs", "docs.redhat.com"),
    at(
        "rh-rhel10cpu",
        "RHEL 10: Optimizing VM CPU performance (overcommit 5:1, at most 10 vCPU per core)",
        "docs.redhat.com",
    ),
    at("rh-rhel6limits", "RHEL 6 virtualization limits and overcommit notes", "docs.redhat.com"),
    at("rh-rhel6perf", "RHEL 6 Virtualization Tuning and Optimization Guide", "docs.redhat.com"),
    at("rh-rhel7io", "RHEL 7 tuning guide 7: block I/O", "docs.redhat.com"),
    at("rh-rhel7mq", "RHEL 7 tuning guide 5.4.2: multi-queue virtio-net", "docs.redhat.com"),
    at("rh-rhel7thp", "RHEL 7 tuning guide 8.2.3: KSM and THP", "docs.redhat.com"),
    at("rh-rhel7vtog", "RHEL 7 tuning guide 9.3: libvirt NUMA tuning", "docs.redhat.com"),
    at("rh-rt", "RHEL for Real Time: virtualization", "docs.redhat.com"),
    at("rh-sched", "RHEL 9: setting the disk scheduler", "docs.redhat.com"),
    at("talk-rhel63-io", "KVM I/O, PCI passthrough, RHEL 6.3 on IBM x3850 X5", "paper or talk, 2010 to 2013"),
    at("talk-kvm-tuning", "Red Hat Summit KVM tuning talk", "paper or talk, 2010 to 2013"),
    at("paper-sriov-specvirt", "SR-IOV and SPECvirt_sc2010", "paper or talk, 2010 to 2013"),
    at("paper-sgi-uv", "SGI UV 2000, RHEL 6.3 KVM and NUMA", "paper or talk, 2010 to 2013"),
    at("paper-infn", "INFN WNoDeS, KVM in a worker-node farm", "paper or talk, 2010 to 2013"),
    at("t-cocoon-226", "pull request 226: disk queues of all VMs on CPUs 0-7", "github.com/cocoonstack/cocoon"),
    at("t-kata-13539", "issue 13539: VMs on the same CPUs", "github.com/kata-containers/kata-containers"),
    at("t-kubevirt-6981", "issue 6981: pages split 1290 and 758 over nodes", "github.com/kubevirt/kubevirt"),
    at("t-lxd-15082", "issue 15082: memory stayed on node 0", "github.com/canonical/lxd"),
    at("t-nl", "profile network-latency", "github.com/redhat-performance/tuned"),
    at("t-nri-716", "pull request 716: emulated L3 wider than a package", "github.com/containers/nri-plugins"),
    at("t-one-6596", "issue 6596: CPU pinning of several VMs", "github.com/OpenNebula/one"),
    at("vhostblk", "vhost-blk RFC and its fio table, 2022", "qemu-devel list"),
];

/// The source of that key.
pub fn source(key: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|source| source.key == key)
}
