//! Settings of the kernel, interrupts, links.

use nearmetal_host::PciLink;
use nearmetal_units::CpuSet;

use crate::Break;

pub(crate) const BREAKS: [Break; 19] = [
    Break {
        rule: "smt-policy-for-class",
        change: |example| {
            example.host.system.isolated = Some("4-5".parse().unwrap());
        },
        expected: &["smt-policy-for-class rt: vCPUs"],
    },
    Break {
        rule: "sriov-vfs-sized",
        change: |example| {
            example.texts.retain(|(name, ..)| name != "gpu");
            for device in &mut example.host.pci_devices {
                if device.address.function == 1 {
                    device.driver = Some("igbvf".to_owned());
                }
            }
        },
        expected: &["sriov-vfs-sized host: PCI function 0000:02:00.1"],
    },
    Break {
        rule: "kvm-nested-paging-on",
        change: |example| {
            example.parameter("kvm_intel.ept", "N");
        },
        expected: &["kvm-nested-paging-on host: kvm_intel.ept"],
    },
    Break {
        rule: "kvm-apicv-avic-active",
        change: |example| {
            example.parameter("kvm_intel.enable_apicv", "N");
        },
        expected: &["kvm-apicv-avic-active host: kvm_intel.enable_apicv"],
    },
    Break {
        rule: "kvm-halt-poll-ns-by-class",
        change: |example| {
            example.parameter("kvm.halt_poll_ns", "1000000");
        },
        expected: &["kvm-halt-poll-ns-by-class host: kvm.halt_poll_ns"],
    },
    Break {
        rule: "kvm-nx-huge-pages-known",
        change: |example| {
            example.parameter("kvm.nx_huge_pages", "Y");
        },
        expected: &["kvm-nx-huge-pages-known host: kvm.nx_huge_pages"],
    },
    Break {
        rule: "kvm-l1d-flush-known",
        change: |example| {
            example.parameter("kvm_intel.vmentry_l1d_flush", "never");
        },
        expected: &["kvm-l1d-flush-known host: kvm_intel.vmentry_l1d_flush"],
    },
    Break {
        rule: "cpu-isolation-for-dedicated-vcpus",
        change: |example| {
            example.host.system.isolated = Some("4,20-21".parse().unwrap());
        },
        expected: &[
            "cpu-isolation-for-dedicated-vcpus rt: vCPUs",
            "rt-throttle-off-for-fifo-vcpus host: kernel.sched_rt_runtime_us",
        ],
    },
    Break {
        rule: "nohz-full-rcu-nocbs-on-isolated",
        change: |example| {
            example.host.system.nohz_full = Some(CpuSet::new());
        },
        expected: &["nohz-full-rcu-nocbs-on-isolated rt: vCPUs"],
    },
    Break {
        rule: "irq-affinity-off-isolated",
        change: |example| {
            example.host.interrupts[0].effective = Some(CpuSet::one(5));
        },
        expected: &["irq-affinity-off-isolated rt: interrupt 30 (nvme0q1)"],
    },
    Break {
        rule: "host-clocksource-tsc",
        change: |example| {
            example.host.system.clocksource = Some("hpet".to_owned());
        },
        expected: &["host-clocksource-tsc host: clock source"],
    },
    Break {
        rule: "cpufreq-governor-performance",
        change: |example| {
            example.host.system.frequency[0].governor = Some("powersave".to_owned());
        },
        expected: &["cpufreq-governor-performance host: PUs 0-31"],
    },
    Break {
        rule: "ksm-off-for-performance",
        change: |example| {
            example.host.system.ksm = Some(1);
        },
        expected: &["ksm-off-for-performance host: same-page merging"],
    },
    Break {
        rule: "thp-defrag-policy",
        change: |example| {
            example.host.system.transparent_hugepage_defrag = Some("always".to_owned());
        },
        expected: &["thp-defrag-policy host: transparent huge pages' defrag"],
    },
    Break {
        rule: "intremap-no-unsafe-interrupts",
        change: |example| {
            example.parameter("vfio_iommu_type1.allow_unsafe_interrupts", "Y");
        },
        expected: &["intremap-no-unsafe-interrupts host: vfio_iommu_type1.allow_unsafe_interrupts"],
    },
    Break {
        rule: "pcie-link-full",
        change: |example| {
            example.host.pci_devices[0].link =
                Some(PciLink { width: Some(2), max_width: Some(4), ..PciLink::default() });
        },
        expected: &["pcie-link-full host: PCI function 0000:01:00.0"],
    },
    Break {
        rule: "net-mtu-consistent",
        change: |example| {
            example.host.network_interfaces[0].mtu = Some(9000);
        },
        expected: &["net-mtu-consistent host: interface eth0"],
    },
    Break {
        rule: "net-nic-queues-local",
        change: |example| {
            example.host.network_interfaces[0].receive_queues = Some(2);
        },
        expected: &["net-nic-queues-local host: interface eth0"],
    },
    Break {
        rule: "net-nic-queues-local",
        change: |example| {
            example.host.interrupts[1].effective = Some(CpuSet::one(9));
        },
        expected: &["net-nic-queues-local host: interface eth0 interrupt 40"],
    },
];
