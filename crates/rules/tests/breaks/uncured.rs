//! Rules none of whose findings a program cures, and why. A new rule has cures, or a line here. Rules of severity
//! `decide` never have any and are not listed.

const PLANNER: &str = "which vCPUs, memory and devices go together is the planner's to say: `nearmetal plan`";
const POOLS: &str = "pages have to be in the pools first, or the guest does not start: `nearmetal plan` sizes them";
const GUEST: &str = "the guest needs a driver or another device tree first, or does not boot";
const HARDWARE: &str = "it takes firmware, a slot, or another card";
const NETWORK: &str = "which network a guest belongs to is in no definition";
const STORAGE: &str = "where the bytes lie, or what they may cost, is its owner's decision";
const OVS: &str = "Open vSwitch keeps its settings in a database of its own";
const INSIDE: &str = "it is set inside the guest, and a cure would write on the host";
const IMAGE: &str = "the image is made anew or rewritten while its guest is off";
const LOAD: &str = "less load, a smaller guest or another host: a person chooses which";

/// Rule and reason.
pub(crate) const UNCURED: &[(&str, &str)] = &[
    ("backing-block-device", STORAGE),
    ("balloon-holds-memory", "the host must have the memory to spare, and the guest gives it back in its own time"),
    ("command-line-near-limit", "which of the arguments is dispensable is not in them"),
    ("cpu-time-as-defined", "whoever set it meant something by it: a person asks first"),
    ("cpu-topology-honest", PLANNER),
    ("disk-bus-virtio", GUEST),
    ("disk-discard-unmap", STORAGE),
    ("fs-btrfs-nocow", STORAGE),
    ("fs-image-store-type", STORAGE),
    ("fs-o-direct-capable", STORAGE),
    (
        "guest-ram-huge-backed-coverage",
        "pages that are there stay as they are; memory is coherent again after a restart",
    ),
    ("host-memory-reserve", LOAD),
    ("host-runqueue-and-steal-low", LOAD),
    ("hugepages-uneven-over-nodes", POOLS),
    ("iommu-enabled", HARDWARE),
    ("kvm-hw-accel-in-use", HARDWARE),
    ("kvm-runs-on-processor", HARDWARE),
    ("machine-type-current-q35", GUEST),
    ("mem-hugepages", POOLS),
    ("memory-on-memoryless-node", PLANNER),
    ("net-model-virtio", GUEST),
    ("net-mtu-consistent", NETWORK),
    ("net-nic-offloads-on", "ethtool sets them, no kernel file does, and the network's own configuration keeps them"),
    ("net-not-user-mode", NETWORK),
    ("net-sriov-for-heavy", NETWORK),
    ("no-memory-overcommit-dedicated", LOAD),
    ("numa-guest-topology-when-wide", PLANNER),
    ("numa-llc-ccx-alignment", PLANNER),
    ("numa-memory-local-at-runtime", "pages move while the guest stalls, or at its restart: a person chooses when"),
    ("numa-vm-fits-node", PLANNER),
    ("ovs-dpdk-pmd-local-isolated", OVS),
    ("ovs-vhostuserclient", OVS),
    ("pci-device-numa-local", PLANNER),
    ("pcie-link-full", HARDWARE),
    ("smt-policy-for-class", "a core less for each that is given up: a person chooses"),
    ("sriov-vfs-sized", "another number of functions takes the card from all its users"),
    ("thermal-throttle-absent", HARDWARE),
    ("threads-scheduled-as-defined", "whoever set it meant something by it: a person asks first"),
    ("transient-overlay-left", STORAGE),
    (
        "tuned-profile-matches-role",
        "which profile a host follows is its administrator's to say; `doctor export` writes one",
    ),
    ("two-domains-on-one-pu", PLANNER),
    ("unused-emulated-devices-removed", "whether a device is used is known to its users alone"),
    ("vcpu-overcommit-ratio", LOAD),
    ("vcpu-pin-1to1", PLANNER),
    ("vcpu-pin-sibling-pairs", PLANNER),
    ("vcpu-right-size", LOAD),
    ("version-floor-for-features", "a newer QEMU, libvirt or kernel comes from the distribution"),
    ("vfio-guest-hugepage-backed", POOLS),
    ("blk-queue-limits-dm-thin", "a snapshot is merged or removed by whoever made it"),
    ("disk-scsi-single-controller", "a second controller, and who moves to it, take two conditions at one place"),
    ("gpu-bar-and-rom", "a machine type is not changed under an installed system"),
    ("guest-clocksource", INSIDE),
    ("guest-haltpoll-governor", INSIDE),
    ("guest-mq-enabled", INSIDE),
    ("guest-nmi-watchdog-off", INSIDE),
    ("guest-rt-isolation", INSIDE),
    ("guest-scheduler-none", INSIDE),
    ("guest-steal-low", LOAD),
    ("guest-thp", INSIDE),
    ("guest-tuned-profile", INSIDE),
    ("guest-virtio-drivers", INSIDE),
    ("image-backing-chain-short", IMAGE),
    ("image-cluster-extended-l2", IMAGE),
    ("image-compat-v3", IMAGE),
    ("image-partition-aligned", INSIDE),
    ("image-preallocated", IMAGE),
    ("image-raw-or-tuned-qcow2", IMAGE),
    ("iommu-group-clean", HARDWARE),
    ("l3-cat-mba-for-noisy-neighbours", PLANNER),
    ("mem-guest-ram-below-limit-swap", "which memory limit is meant is known to a person"),
];
