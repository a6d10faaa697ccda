//! Power, swap, file systems, cards, versions: the layers of the host, with what cures each.

use nearmetal_host::{ImageFile, TunedProfile};
use nearmetal_units::{Bytes, CpuSet};

use crate::Break;
use crate::common::{DAY, Example};

fn image(example: &mut Example, path: &str, change: impl FnOnce(&mut ImageFile)) {
    let mut image = ImageFile { path: path.to_owned(), ..ImageFile::default() };
    change(&mut image);
    example.host.images.push(image);
}

fn offload(example: &mut Example, name: &str, on: bool) {
    let offloads = &mut example.host.network_interfaces[0].offloads;
    offloads.iter_mut().find(|offload| offload.name == name).unwrap().on = on;
}

pub(crate) const BREAKS: [Break; 34] = [
    Break {
        rule: "kvm-runs-on-processor",
        change: |example| example.host.system.kvm_accelerates = Some(false),
        expected: &["kvm-runs-on-processor host: KVM of this host"],
    },
    Break {
        rule: "numa-memory-adds-up",
        change: |example| example.host.system.memory_total = Some(Bytes::from_mib(384 << 10)),
        expected: &["numa-memory-adds-up host: memory"],
    },
    Break {
        rule: "split-lock-policy-known",
        change: |example| example.sysctl("kernel.split_lock_mitigate", 1),
        expected: &["split-lock-policy-known host: kernel.split_lock_mitigate"],
    },
    Break {
        rule: "tuned-profile-matches-role",
        change: |example| {
            example.host.system.tuned = Some(TunedProfile::Active("virtual-host".to_owned()));
        },
        expected: &["tuned-profile-matches-role host: tuned"],
    },
    Break {
        rule: "tuned-profile-matches-role",
        change: |example| {
            example.host.system.tuned = Some(TunedProfile::None);
        },
        expected: &["tuned-profile-matches-role host: tuned"],
    },
    Break {
        rule: "lockup-watchdogs-off-latency",
        change: |example| {
            example.sysctl("kernel.nmi_watchdog", 1);
            example.sysctl("vm.stat_interval", 1);
        },
        expected: &[
            "lockup-watchdogs-off-latency host: kernel.nmi_watchdog",
            "lockup-watchdogs-off-latency host: vm.stat_interval",
        ],
    },
    Break {
        rule: "rt-throttle-off-for-fifo-vcpus",
        change: |example| example.sysctl("kernel.sched_rt_runtime_us", 950_000),
        expected: &["rt-throttle-off-for-fifo-vcpus host: kernel.sched_rt_runtime_us"],
    },
    Break {
        rule: "rt-throttle-off-for-fifo-vcpus",
        change: |example| {
            // A real-time vCPU where the host's own work runs too.
            example.replace("web", "<os>", "<cputune><vcpusched vcpus='0' scheduler='fifo'/></cputune><os>");
        },
        expected: &[
            "rt-throttle-off-for-fifo-vcpus host: kernel.sched_rt_runtime_us",
            "vcpusched-fifo-rt web: vcpu scheduler",
        ],
    },
    Break {
        rule: "version-floor-for-features",
        change: |example| {
            example.host.system.libvirt_version = Some("6.0.0".to_owned());
        },
        expected: &[
            "version-floor-for-features gpu (defined): disk sda: io_uring",
            "version-floor-for-features hpc (defined): disk vda: several iothreads",
            "version-floor-for-features win (defined): Hyper-V enlightenment avic",
        ],
    },
    Break {
        rule: "version-floor-for-features",
        change: |example| {
            example.host.system.qemu_version = Some("7.1.0".to_owned());
            example.replace("db", "io='native'", "io='io_uring'");
        },
        expected: &[
            "version-floor-for-features db: disk vda: io_uring in an iothread",
            "version-floor-for-features hpc (defined): disk vda: several iothreads",
        ],
    },
    Break {
        rule: "turbo-boost-enabled",
        change: |example| {
            example.without("rt");
            example.host.system.boost.as_mut().unwrap().allowed = false;
        },
        expected: &["turbo-boost-enabled host: boost"],
    },
    Break {
        rule: "cstate-latency-capped",
        change: |example| {
            example.host.system.idle_states[1].states[2].disabled = Some(false);
        },
        expected: &["cstate-latency-capped host: PU 4"],
    },
    Break {
        rule: "cstate-latency-capped",
        change: |example| {
            // Nobody stands for the isolated PUs: all are judged.
            example.host.system.idle_states.remove(1);
        },
        expected: &["cstate-latency-capped host: PU 0", "cstate-latency-capped host: PU 8"],
    },
    Break {
        rule: "host-runqueue-and-steal-low",
        change: |example| {
            example.process("db").vcpu_waits[2].1 = DAY * 20_000_000;
        },
        expected: &["host-runqueue-and-steal-low db (running): vCPU 2"],
    },
    Break {
        rule: "thermal-throttle-absent",
        change: |example| {
            example.host.system.throttling[0].time = Some(DAY * 10);
        },
        expected: &["thermal-throttle-absent host: package 0"],
    },
    Break {
        rule: "qemu-not-swapped",
        change: |example| {
            example.process("web").swapped = Some(Bytes::from_mib(12));
        },
        expected: &["qemu-not-swapped host: QEMU of web"],
    },
    Break {
        rule: "qemu-not-swapped",
        change: |example| {
            example.host.system.swappiness = Some(60);
        },
        expected: &["qemu-not-swapped host: vm.swappiness"],
    },
    Break {
        rule: "ksm-not-across-nodes",
        change: |example| {
            example.texts.retain(|(name, ..)| name == "vdi");
            example.host.guests.clear();
            (example.host.system.ksm, example.host.system.ksm_across_nodes) = (Some(1), Some(true));
        },
        expected: &["ksm-not-across-nodes host: same-page merging", "kvm-halt-poll-ns-by-class host: kvm.halt_poll_ns"],
    },
    Break {
        rule: "memory-spread-flags-legacy",
        change: |example| {
            example.host.cpusets[0].spread_page = Some(true);
        },
        expected: &["memory-spread-flags-legacy host: control group /machine"],
    },
    Break {
        rule: "fs-image-store-type",
        change: |example| {
            image(example, "/images/web.qcow2", |image| image.place = Some("/usb/web.qcow2".to_owned()));
        },
        expected: &["fs-image-store-type web: disk vda"],
    },
    Break {
        rule: "fs-image-store-type",
        change: |example| {
            let mount = &mut example.host.mounts.as_mut().unwrap()[2];
            (mount.kind, mount.options) = ("nfs4".to_owned(), vec!["vers=4.0".to_owned()]);
        },
        expected: &["fs-image-store-type nfv (defined): disk vda"],
    },
    Break {
        rule: "fs-image-store-type",
        change: |example| {
            example.host.mounts.as_mut().unwrap()[2].options = vec!["rw".to_owned()];
        },
        expected: &["fs-image-store-type nfv (defined): disk vda"],
    },
    Break {
        rule: "fs-btrfs-nocow",
        change: |example| {
            example.host.images[0].no_copy_on_write = Some(false);
        },
        expected: &["fs-btrfs-nocow nfv (defined): disk vda"],
    },
    Break {
        rule: "fs-o-direct-capable",
        change: |example| image(example, "/images/gpu.raw", |image| image.direct = Some(false)),
        expected: &["fs-o-direct-capable gpu (defined): disk sda"],
    },
    Break {
        rule: "fs-o-direct-capable",
        change: |example| {
            example.replace("web", "type='qcow2'", "type='qcow2' cache='none'");
            image(example, "/images/web.qcow2", |image| {
                (image.direct, image.opened_direct) = (Some(true), Some(false))
            });
        },
        expected: &["fs-o-direct-capable web (running): disk vda"],
    },
    Break {
        rule: "net-bridge-nf-off",
        change: |example| {
            example.host.system.bridge_filters.as_mut().unwrap()[0].value = 1;
        },
        expected: &["net-bridge-nf-off host: net.bridge.bridge-nf-call-iptables"],
    },
    Break {
        rule: "net-nic-offloads-on",
        change: |example| {
            offload(example, "tcp-segmentation-offload", false);
            // Where latency counts it may be off.
            offload(example, "generic-receive-offload", false);
        },
        expected: &["net-nic-offloads-on host: interface eth0"],
    },
    Break {
        rule: "net-nic-offloads-on",
        change: |example| offload(example, "large-receive-offload", true),
        expected: &["net-nic-offloads-on host: interface eth0"],
    },
    Break {
        rule: "ovs-dpdk-pmd-local-isolated",
        change: |example| {
            example.host.open_vswitch.as_mut().unwrap().polling_cpus = None;
        },
        expected: &["ovs-dpdk-pmd-local-isolated host: polling threads of Open vSwitch"],
    },
    Break {
        rule: "ovs-dpdk-pmd-local-isolated",
        change: |example| {
            example.host.open_vswitch.as_mut().unwrap().polling_cpus = Some(CpuSet::one(15));
            example.host.cpusets[1].cpus = Some(CpuSet::one(15));
        },
        expected: &["ovs-dpdk-pmd-local-isolated host: port dpdk0"],
    },
    Break {
        rule: "ovs-dpdk-pmd-local-isolated",
        change: |example| {
            example.host.open_vswitch.as_mut().unwrap().polling_cpus = Some("4,7".parse().unwrap());
        },
        expected: &[
            "ovs-dpdk-pmd-local-isolated host: polling threads of Open vSwitch",
            "ovs-dpdk-pmd-local-isolated host: polling threads of Open vSwitch",
        ],
    },
    Break {
        rule: "iommu-identity-for-host-devices",
        change: |example| {
            example.host.pci_devices[0].dma_domain = Some("DMA".to_owned());
        },
        expected: &["iommu-identity-for-host-devices host: PCI function 0000:01:00.0"],
    },
    Break {
        rule: "nvme-passthrough-choice",
        change: |example| {
            example.host.block_devices[0].requests = Some(DAY * 300_000);
        },
        expected: &["nvme-passthrough-choice db: disk vda"],
    },
    Break {
        rule: "nvme-passthrough-choice",
        change: |example| {
            let limits = "<iotune><total_iops_sec>250000</total_iops_sec></iotune><target dev='vda'";
            example.replace("rt", "<target dev='vda'", limits);
        },
        expected: &["nvme-passthrough-choice rt: disk vda", "disk-iotune-known rt: disk vda total_iops_sec"],
    },
];

/// What cures the breaks above, rule by rule in their order, where anything does.
pub(crate) const CURES: [(&str, &[&str]); 9] = [
    (
        "cstate-latency-capped",
        &[
            "/sys/devices/system/cpu/cpu4/cpuidle/state2/disable = 1",
            "/sys/devices/system/cpu/cpu5/cpuidle/state2/disable = 1",
            "/sys/devices/system/cpu/cpu20/cpuidle/state2/disable = 1",
            "/sys/devices/system/cpu/cpu21/cpuidle/state2/disable = 1",
        ],
    ),
    ("cstate-latency-capped", &["kernel argument intel_idle.max_cstate=1"]),
    ("ksm-not-across-nodes", &["/sys/kernel/mm/ksm/merge_across_nodes = 0"]),
    ("lockup-watchdogs-off-latency", &["/proc/sys/kernel/nmi_watchdog = 0", "/proc/sys/vm/stat_interval = 10"]),
    ("memory-spread-flags-legacy", &["/sys/fs/cgroup/cpuset/machine/cpuset.memory_spread_page = 0"]),
    ("qemu-not-swapped", &["/proc/sys/vm/swappiness = 10"]),
    ("rt-throttle-off-for-fifo-vcpus", &["/proc/sys/kernel/sched_rt_runtime_us = -1"]),
    ("rt-throttle-off-for-fifo-vcpus", &["/proc/sys/kernel/sched_rt_runtime_us = 950000"]),
    ("turbo-boost-enabled", &["/sys/devices/system/cpu/intel_pstate/no_turbo = 0"]),
];
