//! The host, NUMA, PCI, pools.

use nearmetal_host::ThreadRole;
use nearmetal_units::{Bytes, CpuSet, PageSize};

use crate::Break;

pub(crate) const BREAKS: [Break; 31] = [
    Break {
        rule: "kvm-hw-accel-in-use",
        change: |example| example.replace("web", r#"<domain type='kvm'>"#, r#"<domain type='qemu'>"#),
        expected: &["kvm-hw-accel-in-use web: domain type"],
    },
    Break {
        rule: "mitigations-reported-not-disabled",
        change: |example| {
            example.host.system.command_line = Some("ro mitigations=off".to_owned());
        },
        expected: &["mitigations-reported-not-disabled host: kernel command line"],
    },
    Break {
        rule: "command-line-near-limit",
        change: |example| {
            example.host.system.command_line = Some("x".repeat(1900));
        },
        expected: &["command-line-near-limit host: kernel command line"],
    },
    Break {
        rule: "blk-elevator-param-obsolete",
        change: |example| {
            example.host.system.command_line = Some("ro elevator=deadline".to_owned());
        },
        expected: &["blk-elevator-param-obsolete host: kernel command line"],
    },
    Break {
        rule: "blk-scheduler-none-fast",
        change: |example| {
            example.host.block_devices[0].scheduler = Some("bfq".to_owned());
        },
        expected: &["blk-scheduler-none-fast host: drive nvme0n1"],
    },
    Break {
        rule: "thp-host-enabled",
        change: |example| {
            example.host.system.transparent_hugepage = Some("never".to_owned());
        },
        expected: &["thp-host-enabled host: transparent huge pages"],
    },
    Break {
        rule: "numa-autobalancing-off-when-pinned",
        change: |example| {
            example.texts.retain(|(name, ..)| name != "web");
        },
        expected: &["numa-autobalancing-off-when-pinned host: numa_balancing"],
    },
    Break {
        rule: "numa-vm-fits-node",
        change: |example| {
            example.replace("gpu", "cpuset='6-7,22-23'", "cpuset='6-9'");
        },
        expected: &["numa-vm-fits-node gpu (defined): vCPUs"],
    },
    Break {
        rule: "numa-memory-local-at-runtime",
        change: |example| {
            let pages = &mut example.process("db").residency[0].pages;
            *pages = vec![(0, pages[0].1 / 2), (1, pages[0].1 / 2)];
        },
        expected: &["numa-memory-local-at-runtime db (running): memory in use"],
    },
    Break {
        rule: "numa-numatune-strict",
        change: |example| example.replace("db", r#"mode='strict'"#, r#"mode='preferred'"#),
        expected: &["numa-numatune-strict db: memory policy"],
    },
    Break {
        rule: "numa-numatune-strict",
        change: |example| {
            example.replace("db", "  <numatune><memory mode='strict' nodeset='0'/></numatune>\n", "");
        },
        expected: &["numa-numatune-strict db: memory policy", "numa-vm-fits-node db: memory"],
    },
    Break {
        rule: "numa-guest-topology-when-wide",
        change: |example| {
            example.replace("hpc", r#"cellid='1' mode='strict' nodeset='1'"#, r#"cellid='1' mode='strict' nodeset='0'"#)
        },
        // Its pages are on two nodes, and now both cells ask for those of one.
        expected: &[
            "hugetlb-pool-sized-per-node hpc (defined): node 0",
            "numa-guest-topology-when-wide hpc (defined): cell 1",
        ],
    },
    Break {
        rule: "numa-guest-topology-when-wide",
        change: |example| {
            example.replace("hpc", "cell id='0' cpus='0-9'", "cell id='0' cpus='0-13'");
            example.replace("hpc", "cpus='10-19'", "cpus='14-19'");
            for vcpu in 10..14 {
                example.replace(
                    "hpc",
                    &format!("vcpu='{vcpu}' cpuset='8-15,24-31'"),
                    &format!("vcpu='{vcpu}' cpuset='0-7,16-23'"),
                );
            }
        },
        expected: &["numa-guest-topology-when-wide hpc (defined): cells"],
    },
    Break {
        rule: "numa-llc-ccx-alignment",
        change: |example| {
            for processor in &mut example.host.processors {
                if processor.node == Some(0) {
                    let half: CpuSet =
                        if processor.index % 16 < 2 { "0-1,16-17" } else { "2-7,18-23" }.parse().unwrap();
                    processor.last_level_cache = Some(half);
                }
            }
        },
        expected: &["numa-llc-ccx-alignment db: vCPUs"],
    },
    Break {
        rule: "iommu-enabled",
        change: |example| {
            for device in &mut example.host.pci_devices {
                device.iommu_group = None;
            }
        },
        expected: &[
            "iommu-enabled gpu (defined): PCI function 0000:02:00.1",
            "iommu-enabled gpu (defined): PCI function 0000:03:00.0",
            "iommu-enabled rt: PCI function 0000:02:00.2",
        ],
    },
    Break {
        rule: "vfio-driver-bound",
        change: |example| {
            example.replace("gpu", "<driver name='vfio'/>", "<driver name='kvm'/>");
        },
        expected: &["vfio-driver-bound gpu (defined): PCI function 0000:02:00.1"],
    },
    Break {
        rule: "vfio-driver-bound",
        change: |example| {
            for device in &mut example.host.pci_devices {
                if device.physical_function.is_some() {
                    device.driver = Some("igbvf".to_owned());
                }
            }
        },
        expected: &["vfio-driver-bound rt (running): PCI function 0000:02:00.2"],
    },
    Break {
        rule: "pci-device-numa-local",
        change: |example| {
            for device in &mut example.host.pci_devices {
                device.node = Some(1);
            }
        },
        expected: &[
            "ovs-dpdk-pmd-local-isolated host: port dpdk0",
            "pci-device-numa-local gpu (defined): PCI function 0000:02:00.1",
            "pci-device-numa-local gpu (defined): PCI function 0000:03:00.0",
            "pci-device-numa-local rt: PCI function 0000:02:00.2",
        ],
    },
    Break {
        rule: "vfio-guest-hugepage-backed",
        change: |example| example.replace("gpu", r#"<hugepages><page size='2' unit='MiB'/></hugepages>"#, r#""#),
        expected: &["vfio-guest-hugepage-backed gpu (defined): memory"],
    },
    Break {
        rule: "memlock-limit-for-vfio",
        change: |example| {
            example.replace(
                "gpu",
                r#"<numatune>"#,
                r#"<memtune><hard_limit unit='MiB'>4600</hard_limit></memtune><numatune>"#,
            )
        },
        expected: &["memlock-limit-for-vfio gpu (defined): <hard_limit>"],
    },
    Break {
        rule: "hugetlb-pool-sized-per-node",
        change: |example| {
            for pool in &mut example.host.nodes[1].pools {
                pool.free = 8;
            }
        },
        expected: &["hugetlb-pool-sized-per-node hpc (defined): node 1"],
    },
    Break {
        rule: "hugetlb-1g-for-large-guests",
        change: |example| {
            example.replace("rt", r#"<memory unit='GiB'>8</memory>"#, r#"<memory unit='MiB'>8704</memory>"#)
        },
        expected: &["hugetlb-1g-for-large-guests rt: memory"],
    },
    Break {
        rule: "hugetlb-1g-for-large-guests",
        change: |example| {
            example.replace("hpc", "size='1' unit='GiB'", "size='2' unit='MiB'");
            example.replace("hpc", "<memory unit='GiB'>32", "<memory unit='GiB'>64");
            for node in &mut example.host.nodes {
                node.pools[0].free = 40_000;
            }
        },
        expected: &["hugetlb-1g-for-large-guests hpc (defined): memory"],
    },
    Break {
        rule: "host-memory-reserve",
        change: |example| {
            example.host.nodes[1].memory_total = Some(Bytes::from_mib(32 << 10));
            example.host.system.memory_total = Some(Bytes::from_mib(160 << 10));
        },
        expected: &["host-memory-reserve host: node 1"],
    },
    Break {
        rule: "no-memory-overcommit-dedicated",
        change: |example| {
            example.replace("web", "<memory unit='GiB'>4<", "<memory unit='GiB'>400<");
        },
        expected: &["no-memory-overcommit-dedicated host: memory"],
    },
    Break {
        rule: "vcpu-overcommit-ratio",
        change: |example| {
            for number in 0..40 {
                let text = example.texts[0].1.replace("<name>web", &format!("<name>web{number}"));
                example.texts.push((format!("web{number}"), text, true));
            }
        },
        expected: &["vcpu-overcommit-ratio host: running domains"],
    },
    Break {
        rule: "net-vhost-module",
        change: |example| {
            example.process("db").threads.retain(|thread| thread.role != ThreadRole::Vhost);
        },
        expected: &["net-vhost-module db (running): vhost"],
    },
    Break {
        rule: "guest-ram-huge-backed-coverage",
        change: |example| {
            example.process("rt").residency[0].page_size = PageSize::SMALL;
        },
        expected: &["guest-ram-huge-backed-coverage rt (running): memory in use"],
    },
    Break {
        rule: "memory-on-memoryless-node",
        change: |example| {
            example.replace(
                "gpu",
                r#"<numatune><memory mode='strict' nodeset='0'/>"#,
                r#"<numatune><memory mode='strict' nodeset='7'/>"#,
            )
        },
        expected: &[
            "memory-on-memoryless-node gpu (defined): memory",
            "hugetlb-pool-sized-per-node gpu (defined): node 7",
            "numa-vm-fits-node gpu (defined): memory",
            "pci-device-numa-local gpu (defined): PCI function 0000:02:00.1",
            "pci-device-numa-local gpu (defined): PCI function 0000:03:00.0",
        ],
    },
    Break {
        rule: "numad-beside-static-pins",
        change: |example| example.replace("db", r#"<vcpu>4</vcpu>"#, r#"<vcpu placement='auto'>4</vcpu>"#),
        expected: &["numad-beside-static-pins db: <vcpu>"],
    },
    Break {
        rule: "hugepages-uneven-over-nodes",
        change: |example| {
            example.host.nodes[0].pools[0].total = 8192;
        },
        expected: &["hugepages-uneven-over-nodes host: pages of 2 MiB"],
    },
];
