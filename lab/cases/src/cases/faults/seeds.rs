//! What is broken, and what must be found of it.

/// One fault.
pub(super) struct Seed {
    /// In words.
    pub(super) name: &'static str,
    /// The script that sows it; empty for what the boot brought.
    pub(super) sow: &'static str,
    /// What must be found: `rule place: part of the object`.
    pub(super) finding: &'static str,
    /// What it breaks besides: `rule place`.
    pub(super) besides: &'static [&'static str],
    /// Whether `--fix` cures it: at once, or in the stored definition.
    pub(super) cured: bool,
}

impl Seed {
    /// Whether it is among what was found.
    pub(super) fn is_in(&self, found: &[String]) -> bool {
        let Some((place, object)) = self.finding.split_once(": ") else { return false };
        found.iter().filter_map(|line| line.split_once(": ")).any(|(at, what)| at == place && what.contains(object))
    }

    /// Rules and places it breaks.
    pub(super) fn places(&self) -> impl Iterator<Item = &'static str> {
        self.finding.split_once(": ").map(|(place, _)| place).into_iter().chain(self.besides.iter().copied())
    }
}

/// Two PUs for the latency guest alone; a clean machine has them.
pub(super) const ISOLATED: &str = "isolcpus=managed_irq,domain,3-4 nohz_full=3-4 rcu_nocbs=3-4 irqaffinity=0-2,5-11";

/// An argument so long that what stands behind it may be cut off: x86 keeps 2048 bytes of them all.
pub(super) fn long() -> String {
    format!("nearmetal.room={}", "0".repeat(1660))
}

/// A shell function: the stored definition of a domain, through sed.
pub(super) const EDIT: &str = r#"
edit() {
    virsh dumpxml $1 --inactive --security-info > /root/before.xml
    sed "$2" /root/before.xml > /root/after.xml
    if cmp -s /root/before.xml /root/after.xml; then echo "nothing edited: $2" >&2; exit 1; fi
    virsh -q define /root/after.xml
}"#;

/// The faults.
pub(super) const SEEDS: &[Seed] = &[
    Seed {
        name: "kernel command line near its limit",
        sow: "",
        finding: "command-line-near-limit host: kernel command line",
        besides: &[],
        cured: false,
    },
    // First, since a network card spreads its interrupts anew when a processor goes.
    Seed {
        name: "a pin on a processor that is off",
        sow: "echo 0 > /sys/devices/system/cpu/cpu11/online",
        finding: "pin-on-offline-cpu wide1/defined: emulator thread",
        besides: &[],
        cured: false,
    },
    Seed {
        name: "NUMA balancing beside static pins",
        sow: "echo 1 > /proc/sys/kernel/numa_balancing",
        finding: "numa-autobalancing-off-when-pinned host: numa_balancing",
        besides: &[],
        cured: true,
    },
    Seed {
        name: "same-page merging on",
        sow: "echo 1 > /sys/kernel/mm/ksm/run",
        finding: "ksm-off-for-performance host: same-page merging",
        besides: &["ksm-not-across-nodes host"],
        cured: true,
    },
    Seed {
        name: "huge pages compacted while a latency guest waits",
        sow: "echo always > /sys/kernel/mm/transparent_hugepage/defrag",
        finding: "thp-defrag-policy host: transparent huge pages' defrag",
        besides: &[],
        cured: true,
    },
    Seed {
        name: "uneven pools over the nodes",
        sow: "echo 100 > /sys/devices/system/node/node3/hugepages/hugepages-2048kB/nr_hugepages",
        finding: "hugepages-uneven-over-nodes host: pages of 2 MiB",
        besides: &[],
        cured: false,
    },
    Seed {
        name: "halt polling far above what the classes need",
        sow: "echo 800000 > /sys/module/kvm/parameters/halt_poll_ns",
        finding: "kvm-halt-poll-ns-by-class host: kvm.halt_poll_ns",
        besides: &[],
        cured: true,
    },
    Seed {
        name: "unsafe interrupts allowed for VFIO",
        sow: "echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts",
        finding: "intremap-no-unsafe-interrupts host: vfio_iommu_type1.allow_unsafe_interrupts",
        besides: &[],
        cured: false,
    },
    Seed {
        name: "bridge with another MTU than its tap",
        sow: "ip link set virbr0 mtu 9000",
        finding: "net-mtu-consistent host: interface vnet",
        besides: &[],
        cured: false,
    },
    Seed {
        name: "interrupt of the management card on a vCPU's PU",
        sow: "irq=$(grep -l virtio2-input.0 /sys/kernel/irq/*/actions | cut -d/ -f5); echo 3 > /proc/irq/$irq/smp_affinity_list",
        finding: "irq-affinity-off-isolated db1/running: (virtio2-input.0)",
        besides: &["irq-affinity-off-isolated db1/defined"],
        cured: true,
    },
    Seed {
        name: "two guests on one PU",
        sow: "virsh -q vcpupin db1 1 6 --live",
        finding: "two-domains-on-one-pu db1/running: vCPU 1",
        besides: &[
            "two-domains-on-one-pu web1",
            "kvm-hint-dedicated db1/running",
            "cpu-isolation-for-dedicated-vcpus db1/running",
            "numa-numatune-strict db1/running",
            "numa-vm-fits-node db1/running",
            "pins-as-defined db1/running",
        ],
        cured: true,
    },
    Seed {
        name: "emulator thread on a vCPU's PU",
        sow: "virsh -q emulatorpin web1 7 --live",
        finding: "emulator-pin-separate web1/running: emulator thread",
        besides: &["pins-as-defined web1/running"],
        cured: true,
    },
    Seed {
        name: "iothread moved to another node",
        sow: "virsh -q iothreadpin web1 1 0 --live",
        finding: "pins-as-defined web1/running: iothread 1",
        besides: &[],
        cured: true,
    },
    Seed {
        name: "CFS quota on vCPUs",
        sow: "virsh -q schedinfo web1 --live vcpu_quota=50000 >/dev/null",
        finding: "vcpu-no-cfs-quota web1/running: <quota>",
        besides: &["cpu-time-as-defined web1/running"],
        cured: false,
    },
    Seed {
        name: "guest memory moved to another node",
        sow: "migratepages $(cat /run/libvirt/qemu/web1.pid) 2 0",
        finding: "numa-memory-local-at-runtime web1/running: memory in use",
        // It takes the pages that another guest will want.
        besides: &["hugetlb-pool-sized-per-node wide1/defined"],
        cured: false,
    },
    Seed {
        name: "a throttle on the disk",
        sow: "virsh -q blkdeviotune web1 vda --total-iops-sec 100 --live",
        finding: "disk-iotune-known web1/running: disk vda total_iops_sec",
        besides: &[],
        cured: false,
    },
    Seed {
        name: "disk twice in memory",
        sow: r#"edit web1 "s/cache='none'/cache='writeback'/""#,
        finding: "disk-cache-none web1/defined: disk vda cache",
        besides: &[],
        cured: true,
    },
    Seed {
        name: "disk without event notification",
        sow: r#"edit web1 "s/ io='io_uring'/ io='threads' ioeventfd='off'/""#,
        finding: "disk-ioeventfd-eventidx-default web1/defined: disk vda ioeventfd",
        besides: &["disk-io-native-or-uring web1/defined"],
        cured: true,
    },
    Seed {
        name: "an emulated network card",
        sow: r#"edit web1 "s#<model type='virtio'/>#<model type='e1000'/>#""#,
        finding: "net-model-virtio web1/defined: interface 52:54:00:00:00:11",
        besides: &[],
        cured: false,
    },
    Seed {
        name: "the oldest processor model",
        sow: r#"edit web1 "s#<cpu mode='host-passthrough'[^>]*/>#<cpu mode='custom'><model>qemu64</model></cpu>#""#,
        finding: "cpu-host-passthrough web1/defined: CPU model",
        besides: &[],
        cured: true,
    },
    Seed {
        name: "numad beside static pins",
        sow: r#"edit web1 "s#<memory mode='strict' nodeset='2'/>#<memory mode='strict' placement='auto'/>#""#,
        finding: "numad-beside-static-pins web1/defined: <numatune>",
        besides: &["numa-vm-fits-node web1/defined"],
        cured: true,
    },
    Seed {
        name: "a throw-away overlay left over",
        sow: r#"edit wide1 "s#/dev/disk/by-id/virtio-plain#/var/lib/libvirt/images/plain.TRANSIENTvda-wide1#
            s#disk type='block'#disk type='file'#; s#source dev=#source file=#; s#type='raw'#type='qcow2'#""#,
        finding: "transient-overlay-left wide1/defined: disk vda",
        besides: &["backing-block-device wide1/defined", "disk-discard-unmap wide1/defined"],
        cured: false,
    },
    Seed {
        name: "an emulated timer",
        sow: r#"edit web1 "s#<timer name='hpet' present='no'/>#<timer name='hpet' present='yes'/>#""#,
        finding: "timers-hpet-off web1/defined: timer hpet",
        besides: &[],
        cured: true,
    },
    Seed {
        name: "a device on another node than its guest",
        sow: r#"edit wide1 "s#<devices>#<devices><hostdev mode='subsystem' type='pci' managed='yes'><source><address \
            domain='0x0000' bus='0x39' slot='0x10' function='0x2'/></source></hostdev>#""#,
        finding: "pci-device-numa-local wide1/defined: PCI function 0000:39:10.2",
        besides: &[],
        cured: false,
    },
    Seed {
        name: "a balloon in a guest with a device",
        sow: r#"edit db1 "s#<memballoon model='none'/>#<memballoon model='virtio'/>#""#,
        finding: "mem-balloon-by-class db1/defined: balloon",
        besides: &[],
        cured: true,
    },
    Seed {
        name: "equal memory over unequal vCPUs",
        sow: r#"edit wide1 "s#memory='294912'#memory='196608'#; s#memory='98304'#memory='196608'#""#,
        finding: "numa-guest-topology-when-wide wide1/defined: cells",
        besides: &[],
        cured: false,
    },
    Seed {
        name: "a wider last-level cache than the host has",
        sow: r#"edit wide1 "s#<topology sockets='4'\(.*\)cores='1'#<cache mode='passthrough'/><topology sockets='1'\1cores='4'#""#,
        finding: "guest-l3-wider-than-host wide1/defined: guest's last-level cache",
        besides: &[],
        cured: false,
    },
];
