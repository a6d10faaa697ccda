//! What cures each break of the host, in the order of the breaks of a rule; and what cures less common ones.

use nearmetal_host::Setting;
use nearmetal_units::Bytes;

use crate::common::Example;

/// Rule, cures. PUs' own files are one line with their number.
pub(crate) const CURES: [(&str, &[&str]); 34] = [
    ("backing-block-device", &[]),
    ("blk-elevator-param-obsolete", &["no kernel argument elevator"]),
    ("blk-scheduler-none-fast", &["/sys/class/block/nvme0n1/queue/scheduler = none"]),
    ("command-line-near-limit", &[]),
    ("cpu-isolation-for-dedicated-vcpus", &["kernel argument isolcpus=managed_irq,domain,4-5,20-21"]),
    ("cpufreq-governor-performance", &["32 × /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor = performance"]),
    ("guest-ram-huge-backed-coverage", &[]),
    ("host-clocksource-tsc", &[]),
    ("host-memory-reserve", &[]),
    ("hugepages-uneven-over-nodes", &[]),
    ("hugetlb-1g-for-large-guests", &[]),
    (
        "hugetlb-1g-for-large-guests",
        &["memoryBacking/hugepages/page/@size = 1048576", "memoryBacking/hugepages/page/@unit = KiB"],
    ),
    ("hugetlb-pool-sized-per-node", &["hugepages of 1 GiB on node 1 = 32"]),
    (
        "irq-affinity-off-isolated",
        &["kernel argument isolcpus=managed_irq,domain,4-5,20-21", "kernel argument irqaffinity=0-3,6-19,22-31"],
    ),
    ("ksm-off-for-performance", &["/sys/kernel/mm/ksm/run = 0"]),
    ("kvm-apicv-avic-active", &["module parameter kvm_intel.enable_apicv = Y"]),
    ("kvm-halt-poll-ns-by-class", &["/sys/module/kvm/parameters/halt_poll_ns = 200000"]),
    ("kvm-hw-accel-in-use", &[]),
    ("kvm-l1d-flush-known", &[]),
    ("kvm-nested-paging-on", &[]),
    ("kvm-nx-huge-pages-known", &[]),
    ("memlock-limit-for-vfio", &["memtune/hard_limit = 5242880", "memtune/hard_limit/@unit = KiB"]),
    ("mitigations-reported-not-disabled", &[]),
    ("net-mtu-consistent", &[]),
    ("net-nic-queues-local", &[]),
    ("net-nic-queues-local", &["/proc/irq/40/smp_affinity_list = 0-3,6-7,16-19,22-23"]),
    ("net-vhost-module", &["module vhost_net loaded"]),
    (
        "nohz-full-rcu-nocbs-on-isolated",
        &["kernel argument nohz_full=4-5,20-21", "kernel argument rcu_nocbs=4-5,20-21"],
    ),
    ("no-memory-overcommit-dedicated", &[]),
    ("ovs-vhostuserclient", &[]),
    ("smt-policy-for-class", &[]),
    ("thp-defrag-policy", &["/sys/kernel/mm/transparent_hugepage/defrag = madvise"]),
    ("thp-host-enabled", &["/sys/kernel/mm/transparent_hugepage/enabled = madvise"]),
    ("vcpu-overcommit-ratio", &[]),
];

/// What is broken, in words, how, the rule, its cures.
pub(crate) type Other = (&'static str, fn(&mut Example), &'static str, &'static [&'static str]);

pub(crate) const OTHERS: [Other; 15] = [
    (
        "EPT is off where L1TF is no reason",
        |example| {
            example.parameter("kvm_intel.ept", "N");
            example.parameter("kvm_intel.unrestricted_guest", "N");
            flaw(example, "l1tf", "Not affected");
        },
        "kvm-nested-paging-on",
        &["module parameter kvm_intel.ept = Y", "module parameter kvm_intel.unrestricted_guest = Y"],
    ),
    (
        "unrestricted guests are off because EPT is, against L1TF",
        |example| {
            example.parameter("kvm_intel.ept", "N");
            example.parameter("kvm_intel.unrestricted_guest", "N");
        },
        "kvm-nested-paging-on",
        &[],
    ),
    (
        "the kernel command line switches VPID off, with a dash",
        |example| {
            example.parameter("kvm_intel.vpid", "N");
            example.host.system.command_line = Some("ro kvm-intel.vpid=0".to_owned());
        },
        "kvm-nested-paging-on",
        &["module parameter kvm_intel.vpid = Y", "no kernel argument kvm-intel.vpid"],
    ),
    (
        "AVIC is off on an old kernel, which asks for more than this",
        |example| avic(example, "5.15.0-91-generic"),
        "kvm-apicv-avic-active",
        &[],
    ),
    (
        "AVIC is off on a new kernel",
        |example| avic(example, "6.12.48+deb13-amd64"),
        "kvm-apicv-avic-active",
        &["module parameter kvm_amd.avic = 1"],
    ),
    (
        "another clock was asked for",
        |example| {
            example.host.system.clocksource = Some("hpet".to_owned());
            example.host.system.command_line = Some("ro clocksource=hpet".to_owned());
        },
        "host-clocksource-tsc",
        &["no kernel argument clocksource"],
    ),
    (
        "the kernel command line forbids huge pages",
        |example| {
            example.host.system.transparent_hugepage = Some("never".to_owned());
            example.host.system.command_line = Some("ro transparent_hugepage=never".to_owned());
        },
        "thp-host-enabled",
        &["/sys/kernel/mm/transparent_hugepage/enabled = madvise", "kernel argument transparent_hugepage=madvise"],
    ),
    (
        "an interrupt whose PUs the administrator may choose is on a vCPU's PU",
        |example| {
            example.host.interrupts[0].actions = vec!["nvme0q0".to_owned()];
            example.host.interrupts[0].effective = Some("5".parse().unwrap());
        },
        "irq-affinity-off-isolated",
        &["/proc/irq/30/smp_affinity_list = 0-3,6-7,16-19,22-23", "kernel argument irqaffinity=0-3,6-19,22-31"],
    ),
    (
        "isolating the vCPUs' PUs would leave node 0 without a core",
        |example| example.host.system.isolated = Some("0-3,6-7".parse().unwrap()),
        "cpu-isolation-for-dedicated-vcpus",
        &[],
    ),
    (
        "a spinning drive has no scheduler",
        |example| {
            let drive = &mut example.host.block_devices[0];
            drive.name = "sda".to_owned();
            (drive.rotational, drive.scheduler) = (Some(true), Some("none".to_owned()));
        },
        "blk-scheduler-none-fast",
        &["/sys/class/block/sda/queue/scheduler = mq-deadline"],
    ),
    (
        "an NVMe namespace under multipath has its scheduler at its path",
        |example| {
            let drive = &mut example.host.block_devices[0];
            (drive.served_by, drive.scheduler) = (Some("nvme0c0n1".to_owned()), Some("bfq".to_owned()));
        },
        "blk-scheduler-none-fast",
        &["/sys/class/block/nvme0c0n1/queue/scheduler = none"],
    ),
    (
        "nobody knows whether a drive spins",
        |example| {
            let drive = &mut example.host.block_devices[0];
            drive.name = "sda".to_owned();
            (drive.rotational, drive.scheduler) = (None, Some("bfq".to_owned()));
        },
        "blk-scheduler-none-fast",
        &[],
    ),
    (
        "a pool is too small, and its node has no memory left",
        |example| {
            example.host.nodes[1].pools.iter_mut().for_each(|pool| pool.free = 8);
            example.host.nodes[1].memory_free = Some(Bytes::from_mib(512));
            example.host.nodes[1].memory_reclaimable = None;
        },
        "hugetlb-pool-sized-per-node",
        &[],
    ),
    (
        "1 GiB pages are wanted, and the pools have too few for two cells of one node",
        |example| {
            example.replace("hpc", "size='1' unit='GiB'", "size='2' unit='MiB'");
            example.replace("hpc", "<memory unit='GiB'>32", "<memory unit='GiB'>64");
            example.replace("hpc", "cellid='1' mode='strict' nodeset='1'", "cellid='1' mode='strict' nodeset='0'");
        },
        "hugetlb-1g-for-large-guests",
        &[],
    ),
    (
        "guests of the latency class without pools of their own may not wait for huge pages",
        |example| {
            example.replace("rt", "<hugepages><page size='1' unit='GiB'/></hugepages>", "");
            example.host.system.transparent_hugepage_defrag = Some("always".to_owned());
        },
        "thp-defrag-policy",
        &["/sys/kernel/mm/transparent_hugepage/defrag = defer"],
    ),
];

fn flaw(example: &mut Example, name: &str, value: &str) {
    let known = example.host.system.vulnerabilities.iter_mut().find(|flaw| flaw.name == name).unwrap();
    known.value = value.to_owned();
}

fn avic(example: &mut Example, kernel: &str) {
    example.host.system.kernel = Some(kernel.to_owned());
    let parameters = &mut example.host.system.module_parameters;
    parameters.retain(|setting| !setting.name.starts_with("kvm_intel"));
    parameters.push(Setting { name: "kvm_amd.avic".to_owned(), value: "0".to_owned() });
}
