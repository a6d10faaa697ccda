//! The narrower rules: each applies to few hosts or guests.

use nearmetal_host::{BlockDevice, CpuGroup, DirtyLimit};

use crate::Break;
use crate::common::Example;

/// Gives a domain's interface, which has `<model type='virtio'/>` and no `<driver>`, this one.
fn driver(example: &mut Example, name: &str, driver: &str) {
    example.replace(name, "<model type='virtio'/>", &format!("<model type='virtio'/>{driver}"));
}

pub(crate) const BREAKS: [Break; 42] = [
    Break {
        rule: "kvm-rt-module-params",
        change: |example| example.parameter("kvm_intel.ple_gap", "128"),
        expected: &["kvm-rt-module-params host: kvm_intel.ple_gap"],
    },
    Break {
        rule: "kvm-rt-module-params",
        change: |example| example.parameter("kvm.kvmclock_periodic_sync", "Y"),
        expected: &["kvm-rt-module-params host: kvm.kvmclock_periodic_sync"],
    },
    Break {
        rule: "workqueue-cpumask-housekeeping",
        change: |example| example.host.tuning.workqueue_cpus = Some("0-31".parse().unwrap()),
        expected: &["workqueue-cpumask-housekeeping host: unbound kernel work"],
    },
    Break {
        rule: "kernel-debug-options-off",
        change: |example| example.host.system.command_line = Some("ro slub_debug=FZ page_poison=off".to_owned()),
        expected: &["kernel-debug-options-off host: kernel command line"],
    },
    Break {
        rule: "kernel-debug-options-off",
        change: |example| example.host.system.kernel = Some("6.11.4-301.fc41.x86_64+debug".to_owned()),
        expected: &["kernel-debug-options-off host: kernel"],
    },
    Break {
        rule: "idle-poll-not-global",
        change: |example| example.host.system.command_line = Some("ro idle=poll".to_owned()),
        expected: &["idle-poll-not-global host: kernel command line"],
    },
    Break {
        rule: "l3-cat-mba-for-noisy-neighbours",
        change: |example| example.replace("rt", "cachetune vcpus='0-1'", "cachetune vcpus='0'"),
        expected: &["l3-cat-mba-for-noisy-neighbours rt: last-level cache"],
    },
    Break {
        rule: "zone-reclaim-mode",
        change: |example| example.host.system.zone_reclaim_mode = Some(1),
        expected: &["zone-reclaim-mode host: zone_reclaim_mode"],
    },
    Break {
        rule: "proactive-compaction-latency",
        change: |example| {
            example.texts.retain(|(name, ..)| name == "rt" || name == "hpc");
            example.host.tuning.compaction_proactiveness = Some(20);
            example.host.system.numa_balancing = Some(0);
        },
        expected: &["proactive-compaction-latency host: compaction_proactiveness"],
    },
    Break {
        rule: "hugetlb-vmemmap-optimised",
        change: |example| {
            for node in &mut example.host.nodes {
                (node.pools[1].total, node.pools[1].free) = (80, 80);
            }
        },
        expected: &["hugetlb-vmemmap-optimised host: hugetlb_optimize_vmemmap"],
    },
    Break {
        rule: "host-dirty-limits",
        change: |example| example.host.tuning.dirty.ratio = Some(80),
        expected: &["host-dirty-limits host: dirty_ratio"],
    },
    Break {
        rule: "host-dirty-limits",
        change: |example| example.host.tuning.dirty_background.ratio = Some(20),
        expected: &["host-dirty-limits host: dirty_background_ratio"],
    },
    Break {
        rule: "host-dirty-limits",
        change: |example| {
            example.host.tuning.dirty = DirtyLimit { ratio: Some(0), bytes: Some(200 << 30) };
        },
        expected: &["host-dirty-limits host: dirty_ratio"],
    },
    Break {
        rule: "numa-firmware-nps-llc",
        change: |example| {
            example.host.packages = vec![CpuGroup { number: Some(0), cpus: "0-31".parse().unwrap() }];
            example.replace("vdi", "<vcpu>2</vcpu>", "<vcpu>20</vcpu>");
        },
        expected: &["numa-firmware-nps-llc host: NUMA partitioning of the firmware"],
    },
    Break {
        rule: "blk-rq-affinity",
        change: |example| {
            example.texts.retain(|(name, ..)| name != "rt" && name != "db");
            example.host.system.isolated = None;
            example.host.block_devices[0].queue.rq_affinity = Some(0);
        },
        expected: &["blk-rq-affinity host: drive nvme0n1"],
    },
    Break {
        rule: "blk-nomerges-random",
        change: |example| {
            let disk = BlockDevice {
                name: "sda".to_owned(),
                rotational: Some(true),
                scheduler: Some("mq-deadline".to_owned()),
                pci: example.host.block_devices[0].pci,
                ..BlockDevice::default()
            };
            example.host.block_devices.push(disk);
            example.host.block_devices[2].queue.nomerges = Some(2);
        },
        expected: &["blk-nomerges-random host: drive sda"],
    },
    Break {
        rule: "blk-write-cache-honest",
        change: |example| example.host.block_devices[0].queue.write_cache = Some("write through".to_owned()),
        expected: &["blk-write-cache-honest host: drive nvme0n1"],
    },
    Break {
        rule: "blk-write-cache-honest",
        change: |example| {
            let queue = &mut example.host.block_devices[0].queue;
            queue.write_cache = Some("write through".to_owned());
            (queue.forced_unit_access, queue.drive_cache) = (Some(false), Some("write back".to_owned()));
        },
        expected: &["blk-write-cache-honest host: drive nvme0n1"],
    },
    Break {
        rule: "blk-queue-limits-dm-thin",
        change: |example| {
            let layer = BlockDevice {
                name: "dm-1".to_owned(),
                mapped_name: Some("vg-hpc-real".to_owned()),
                ..BlockDevice::default()
            };
            example.host.block_devices.push(layer);
            example.host.block_devices[1].parts = vec!["dm-1".to_owned()];
        },
        expected: &["blk-queue-limits-dm-thin hpc (defined): disk vda"],
    },
    Break {
        rule: "net-vhost-zcopy-legacy",
        change: |example| example.parameter("vhost_net.experimental_zcopytx", "1"),
        expected: &["net-vhost-zcopy-legacy host: vhost_net.experimental_zcopytx"],
    },
    Break {
        rule: "net-busy-poll-latency",
        change: |example| {
            example.texts.retain(|(name, ..)| name != "rt");
            (example.host.tuning.busy_read, example.host.tuning.busy_poll) = (Some(50), Some(50));
        },
        expected: &["net-busy-poll-latency host: busy_poll", "net-busy-poll-latency host: busy_read"],
    },
    Break {
        rule: "iommu-group-clean",
        change: |example| {
            let group = example.host.pci_devices.last().unwrap().iommu_group;
            example.host.pci_devices[0].iommu_group = group;
        },
        expected: &["iommu-group-clean gpu (defined): PCI function 0000:01:00.0"],
    },
    Break {
        rule: "acs-override-absent",
        change: |example| example.host.system.command_line = Some("ro pcie_acs_override=downstream".to_owned()),
        expected: &["acs-override-absent host: kernel command line"],
    },
    Break {
        rule: "vf-trust-spoof-vlan-known",
        change: |example| example.host.network_interfaces[0].virtual_functions[1].trusted = Some(true),
        expected: &["vf-trust-spoof-vlan-known rt: interface eth0 VF 1"],
    },
    Break {
        rule: "gpu-bar-and-rom",
        change: |example| example.replace("gpu", "pc-q35-9.2", "pc-i440fx-9.2"),
        expected: &[
            "gpu-bar-and-rom gpu (defined): PCI function 0000:03:00.0",
            "machine-type-current-q35 gpu (defined): machine type",
        ],
    },
    Break {
        rule: "pcie-aspm-performance",
        change: |example| example.host.tuning.link_power_policy = Some("powersave".to_owned()),
        expected: &["pcie-aspm-performance host: PCI Express links"],
    },
    Break {
        rule: "cpu-cache-passthrough",
        change: |example| example.replace("win", "threads='1'/>", "threads='1'/><cache mode='passthrough'/>"),
        expected: &["cpu-cache-passthrough win (defined): guest's last-level cache"],
    },
    Break {
        rule: "kvm-poll-control",
        change: |example| {
            example.replace(
                "rt",
                "<hint-dedicated state='on'/>",
                "<hint-dedicated state='on'/><poll-control state='off'/>",
            );
        },
        expected: &["kvm-poll-control rt: kvm poll-control"],
    },
    Break {
        rule: "hyperv-avic-compatible",
        change: |example| example.replace("win", "<avic state='on'/>", ""),
        expected: &["hyperv-avic-compatible win (defined): Hyper-V avic"],
    },
    Break {
        rule: "pmu-by-class",
        change: |example| example.replace("rt", "<pmu state='off'/>", ""),
        expected: &["pmu-by-class rt: performance counters"],
    },
    Break {
        rule: "mem-guest-ram-below-limit-swap",
        change: |example| example.host.memory_groups[0].high = Some(12),
        expected: &["mem-guest-ram-below-limit-swap db (running): control group memory.high"],
    },
    Break {
        rule: "mem-guest-ram-below-limit-swap",
        change: |example| example.host.memory_groups[0].swap = Some(4096),
        expected: &["mem-guest-ram-below-limit-swap db (running): control group memory"],
    },
    Break {
        rule: "disk-queue-size-sane",
        change: |example| example.replace("web", "type='qcow2'", "type='qcow2' queue_size='64'"),
        expected: &["disk-queue-size-sane web: disk vda queue_size"],
    },
    Break {
        rule: "disk-queue-size-sane",
        change: |example| example.replace("rt", "io='native'", "io='native' queue_size='1024'"),
        expected: &["disk-queue-size-sane rt: disk vda queue_size"],
    },
    Break {
        rule: "disk-detect-zeroes-off",
        change: |example| example.replace("db", "io='native'", "io='native' detect_zeroes='unmap'"),
        expected: &["disk-detect-zeroes-off db: disk vda detect_zeroes"],
    },
    Break {
        rule: "disk-scsi-single-controller",
        change: |example| {
            let disk = "<disk type='block' device='disk'><driver name='qemu' type='raw' cache='none' io='io_uring'/><source dev='/dev/sdx'/><target dev='sdb' bus='scsi'/></disk>";
            let controller = "<controller type='scsi' index='0' model='virtio-scsi'>";
            example.replace(
                "gpu",
                &controller.replace("'>", "'/>"),
                &format!("{disk}{controller}<driver iothread='1'/></controller>"),
            );
            example.replace("gpu", "  <numatune>", "  <iothreads>1</iothreads>\n  <numatune>");
        },
        expected: &["disk-scsi-single-controller gpu (defined): SCSI controllers"],
    },
    Break {
        rule: "disk-vhost-user-blk-for-extreme",
        change: |example| example.replace("nfv", "<reconnect enabled='yes' timeout='5'/>", ""),
        expected: &["disk-vhost-user-blk-for-extreme nfv (defined): disk vdb"],
    },
    Break {
        rule: "net-mrgrxbuf-dpdk",
        change: |example| driver(example, "web", "<driver><host mrg_rxbuf='off'/></driver>"),
        expected: &["net-mrgrxbuf-dpdk web: interface 52:54:00:00:00:01 mrg_rxbuf"],
    },
    Break {
        rule: "net-mrgrxbuf-dpdk",
        change: |example| {
            let from = "<driver rx_queue_size='1024' tx_queue_size='1024'/>";
            let to =
                "<mtu size='9000'/><driver rx_queue_size='1024' tx_queue_size='1024'><host mrg_rxbuf='off'/></driver>";
            example.replace("nfv", from, to);
        },
        expected: &["net-mrgrxbuf-dpdk nfv (defined): interface 52:54:00:00:00:08 mrg_rxbuf"],
    },
    Break {
        rule: "net-packed-optional",
        change: |example| driver(example, "web", "<driver packed='on'/>"),
        expected: &["net-packed-optional web: interface 52:54:00:00:00:01 packed"],
    },
    Break {
        rule: "net-vdpa-hardware",
        change: |example| example.replace("nfv", "<driver page_per_vq='on'/>", ""),
        expected: &["net-vdpa-hardware nfv (defined): interface 52:54:00:00:00:09 page_per_vq"],
    },
    Break {
        rule: "net-bandwidth-cap-known",
        change: |example| {
            let cap = "<source bridge='br0'/><bandwidth><outbound average='12500'/></bandwidth>";
            example.replace("db", "<source bridge='br0'/>", cap);
        },
        expected: &["net-bandwidth-cap-known db: interface 52:54:00:00:00:03 outbound"],
    },
];
