//! The clean example: one host and a domain of each kind, which no rule finds anything in.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod inside;

use std::collections::BTreeMap;

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_host::images::{Image, ImageChain};
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_host::{
    BlockDevice, BlockQueue, Boost, CpuQuota, CpuTimeGroup, Cpuset, DirtyLimit, DpdkPort, FrequencyPolicy,
    GuestProcess, Host, IdleState, IdleStates, ImageFile, Interrupt, MemoryGroup, Mount, NetworkInterface, Offload,
    OpenVswitch, PciDevice, PciLink, Residency, Scheduling, SchedulingPolicy, Setting, SwapArea, Sysctl, Thread,
    ThreadRole, Throttling, TunedProfile, Tuning, VirtualFunction,
};
use nearmetal_rules::{Domain, Examination, Input, RULES, Rule, Settings, examine};
use nearmetal_units::{Bytes, CpuSet, PageSize};

/// How long the machine has been up, in seconds.
pub(crate) const DAY: u64 = 86_400;

/// Definitions of the clean example: (name, text, whether it runs).
pub(crate) const DOMAINS: [(&str, &str, bool); 8] = [
    ("web", include_str!("../../../../fixtures/rules/web.xml"), true),
    ("vdi", include_str!("../../../../fixtures/rules/vdi.xml"), false),
    ("db", include_str!("../../../../fixtures/rules/db.xml"), true),
    ("rt", include_str!("../../../../fixtures/rules/rt.xml"), true),
    ("win", include_str!("../../../../fixtures/rules/win.xml"), false),
    ("gpu", include_str!("../../../../fixtures/rules/gpu.xml"), false),
    ("hpc", include_str!("../../../../fixtures/rules/hpc.xml"), false),
    ("nfv", include_str!("../../../../fixtures/rules/nfv.xml"), false),
];

/// A machine with domains on it.
pub(crate) struct Example {
    pub(crate) host: Host,
    pub(crate) texts: Vec<(String, String, bool)>,
    /// Insides of guests by the domain's name.
    pub(crate) insides: BTreeMap<String, Host>,
    /// Definitions in force that differ from the stored ones, by the domain's name.
    pub(crate) in_force: BTreeMap<String, String>,
    /// Images by the source that disks name.
    pub(crate) images: BTreeMap<String, Result<ImageChain, String>>,
}

impl Example {
    /// Two packages of 8 cores with 2 PUs each: node 0 has PUs 0-7,16-23, node 1 8-15,24-31.
    pub(crate) fn clean() -> Self {
        let machine = Synthetic::new().packages(2).cores_per_node(8).threads(2).numbering(Numbering::Split);
        let machine = machine.memory_per_node(Bytes::from_mib(128 << 10)).pool(PageSize::HUGE_2M, 4096);
        let machine = machine.pool(PageSize::HUGE_1G, 24).nvme(0).network(0, 4, 2);
        let process = |pid, name: &str, vcpus: &[u32], page_size, bytes: Bytes| {
            let thread = |id, role, cpus: CpuSet| Thread {
                id,
                name: String::new(),
                role,
                affinity: Some(cpus),
                scheduling: Some(Scheduling::DEFAULT),
            };
            let mut threads: Vec<Thread> = (0u32..)
                .zip(vcpus)
                .map(|(vcpu, pu)| thread(pid + 1 + vcpu, ThreadRole::Vcpu(vcpu), CpuSet::one(*pu)))
                .collect();
            threads.push(thread(pid + 100, ThreadRole::Vhost, CpuSet::one(0)));
            // As libvirt makes them on a host with systemd: a scope, and in it a group for each vCPU and one for the rest.
            let group = |path: String, threads: Vec<u32>| CpuTimeGroup {
                path: format!("/machine.slice/machine-qemu-{pid}.scope{path}"),
                version: 2,
                threads,
                weight: Some(100),
                quota: Some(CpuQuota::Unlimited),
            };
            let mut time_groups: Vec<CpuTimeGroup> = (0u32..)
                .zip(vcpus)
                .map(|(vcpu, _)| group(format!("/libvirt/vcpu{vcpu}"), vec![pid + 1 + vcpu]))
                .collect();
            time_groups.push(group("/libvirt/emulator".to_owned(), vec![pid + 100]));
            time_groups.push(group(String::new(), Vec::new()));
            GuestProcess {
                pid,
                time_groups,
                start_time: Some(1),
                name: Some(name.to_owned()),
                uuid: None,
                memory: Some(bytes),
                threads,
                residency: vec![Residency {
                    start: 0,
                    page_size,
                    length: bytes,
                    guest_memory: true,
                    pages: vec![(0, bytes.pages(page_size))],
                    policy: "bind:0".to_owned(),
                    file: None,
                }],
                ..GuestProcess::default()
            }
        };
        let machine = machine
            .guest(process(1000, "db", &[1, 17, 2, 18], PageSize::SMALL, Bytes::from_mib(16 << 10)))
            .guest(process(2000, "rt", &[4, 5], PageSize::HUGE_1G, Bytes::from_mib(8 << 10)))
            .guest(process(3000, "web", &[], PageSize::SMALL, Bytes::from_mib(4 << 10)));
        let mut host = machine.build();
        let fifo = Scheduling { policy: SchedulingPolicy::Fifo, priority: 1, nice: 0 };
        let rt = host.guests.iter_mut().find(|guest| guest.pid == 2000).unwrap();
        let vcpus = rt.threads.iter_mut().filter(|thread| matches!(thread.role, ThreadRole::Vcpu(_)));
        vcpus.for_each(|thread| thread.scheduling = Some(fifo));
        host.system.command_line = Some("root=/dev/sda1 ro quiet".to_owned());
        for device in host.pci_devices.iter_mut().filter(|device| device.physical_function.is_some()) {
            device.driver = Some("vfio-pci".to_owned());
        }
        settings_of_a_tuned_machine(&mut host);
        facts_of_all_layers(&mut host);
        let texts = DOMAINS.iter().map(|(name, text, runs)| ((*name).to_owned(), (*text).to_owned(), *runs)).collect();
        let insides = DOMAINS.iter().filter(|(name, ..)| *name != "win");
        let insides = insides.map(|(name, text, _)| ((*name).to_owned(), inside::of(&facts(text)))).collect();
        Self { host, texts, insides, in_force: BTreeMap::new(), images: inside::images() }
    }

    /// The inside of a guest.
    pub(crate) fn inside(&mut self, name: &str) -> &mut Host {
        self.insides.get_mut(name).unwrap()
    }

    /// The image a guest writes to, by the source its disk names.
    pub(crate) fn image(&mut self, source: &str) -> &mut Image {
        &mut self.images.get_mut(source).unwrap().as_mut().unwrap().top
    }

    /// Gives a module parameter another value; it must be there.
    pub(crate) fn parameter(&mut self, name: &str, value: &str) {
        let parameters = &mut self.host.system.module_parameters;
        parameters.iter_mut().find(|setting| setting.name == name).unwrap().value = value.to_owned();
    }

    /// Gives a number under /proc/sys another value; it must be there.
    pub(crate) fn sysctl(&mut self, name: &str, value: i64) {
        let sysctls = &mut self.host.system.sysctls;
        sysctls.iter_mut().find(|sysctl| sysctl.name == name).unwrap().value = value;
    }

    /// Takes a domain out.
    pub(crate) fn without(&mut self, name: &str) {
        self.texts.retain(|(known, ..)| known != name);
    }

    /// Replaces a text in one definition; it must be there.
    pub(crate) fn replace(&mut self, name: &str, from: &str, to: &str) {
        let text = &mut self.texts.iter_mut().find(|(known, ..)| known == name).unwrap().1;
        assert!(text.contains(from), "`{from}` is not in the definition of {name}");
        *text = text.replacen(from, to, 1);
    }

    /// Replaces a text in the definition in force alone, as a change of the running guest does; it must be there.
    pub(crate) fn replace_in_force(&mut self, name: &str, from: &str, to: &str) {
        let stored = &self.texts.iter().find(|(known, ..)| known == name).unwrap().1;
        assert!(stored.contains(from), "`{from}` is not in the definition of {name}");
        self.in_force.insert(name.to_owned(), stored.replacen(from, to, 1));
    }

    pub(crate) fn process(&mut self, name: &str) -> &mut GuestProcess {
        self.host.guests.iter_mut().find(|guest| guest.name.as_deref() == Some(name)).unwrap()
    }

    pub(crate) fn examine<'a>(&self, rules: impl IntoIterator<Item = &'a Rule>) -> Examination {
        let domain = |(_, text, runs): &(String, String, bool)| {
            let name = facts(text).name;
            let in_force = self.in_force.get(&name).unwrap_or(text);
            let mut domain = Domain::new(Some(facts(text)), runs.then(|| facts(in_force)), None).unwrap();
            domain.inside = self.insides.get(&domain.name).cloned();
            domain.images = self.images.clone();
            domain
        };
        let domains: Vec<Domain> = self.texts.iter().map(domain).collect();
        let settings = Settings::default();
        examine(&Input { host: Some(&self.host), domains: &domains, settings: &settings }, rules)
    }

    /// All findings, as `rule place: object`, sorted.
    pub(crate) fn findings(&self) -> Vec<String> {
        let findings = self.examine(RULES).findings;
        let mut lines: Vec<String> = findings
            .iter()
            .flat_map(|finding| {
                finding.objects.iter().map(|object| format!("{} {}: {}", finding.rule, finding.place(), object.what))
            })
            .collect();
        lines.sort();
        lines
    }
}

fn facts(text: &str) -> DomainFacts {
    DomainXml::parse(text).unwrap().facts().unwrap()
}

fn settings_of_a_tuned_machine(host: &mut Host) {
    let setting = |(name, value): (&str, &str)| Setting { name: name.to_owned(), value: value.to_owned() };
    let system = &mut host.system;
    system.module_parameters = [
        ("kvm.halt_poll_ns", "200000"),
        ("kvm.kvmclock_periodic_sync", "N"),
        ("kvm.nx_huge_pages", "N"),
        ("kvm_intel.enable_apicv", "Y"),
        ("kvm_intel.ept", "Y"),
        ("kvm_intel.ple_gap", "0"),
        ("kvm_intel.unrestricted_guest", "Y"),
        ("kvm_intel.vmentry_l1d_flush", "cond"),
        ("kvm_intel.vpid", "Y"),
        ("vfio_iommu_type1.allow_unsafe_interrupts", "N"),
        ("vhost_net.experimental_zcopytx", "0"),
    ]
    .map(setting)
    .to_vec();
    system.vulnerabilities =
        [("itlb_multihit", "Not affected"), ("l1tf", "Mitigation: PTE Inversion")].map(setting).to_vec();
    system.isolated = Some("4-5,20-21".parse().unwrap());
    system.nohz_full = system.isolated.clone();
    system.clocksource = Some("tsc".to_owned());
    system.zone_reclaim_mode = Some(0);
    system.ksm = Some(0);
    system.transparent_hugepage_defrag = Some("madvise".to_owned());
    system.frequency = vec![FrequencyPolicy {
        driver: Some("intel_pstate".to_owned()),
        governor: Some("performance".to_owned()),
        cpus: "0-31".parse().unwrap(),
    }];
    let drive = host.block_devices[0].pci;
    let card = host.network_interfaces[0].pci;
    let interrupt = |number, device, action: &str, pu| Interrupt {
        number,
        device,
        actions: vec![action.to_owned()],
        effective: Some(CpuSet::one(pu)),
        ..Interrupt::default()
    };
    host.interrupts = vec![interrupt(30, drive, "nvme0q1", 0), interrupt(40, card, "eth0-TxRx-0", 16)];
    for device in &mut host.pci_devices {
        device.link = Some(PciLink { speed: Some(8000), width: Some(8), max_speed: Some(8000), max_width: Some(8) });
    }
    // A graphics card, and a volume of LVM on the drive.
    host.pci_devices.push(PciDevice {
        address: "0000:03:00.0".parse().unwrap(),
        class: Some(0x03_00_00),
        node: Some(0),
        driver: Some("vfio-pci".to_owned()),
        iommu_group: Some(90),
        link: Some(PciLink { speed: Some(16_000), width: Some(16), max_speed: Some(16_000), max_width: Some(16) }),
        ..PciDevice::default()
    });
    host.block_devices[0].queue = BlockQueue {
        rq_affinity: Some(1),
        nomerges: Some(0),
        write_cache: Some("write back".to_owned()),
        forced_unit_access: Some(true),
        drive_cache: None,
    };
    host.block_devices.push(BlockDevice {
        name: "dm-0".to_owned(),
        mapping: Some("LVM".to_owned()),
        mapped_name: Some("vg-hpc".to_owned()),
        parts: vec!["nvme0n1".to_owned()],
        ..BlockDevice::default()
    });
    let row = |(number, function): (u32, &str)| VirtualFunction {
        number,
        function: Some(function.parse().unwrap()),
        trusted: Some(false),
        ..VirtualFunction::default()
    };
    host.network_interfaces[0].virtual_functions = [(0, "0000:02:00.1"), (1, "0000:02:00.2")].map(row).to_vec();
    host.tuning = Tuning {
        workqueue_cpus: Some("0-3,6-19,22-31".parse().unwrap()),
        compaction_proactiveness: Some(0),
        hugetlb_optimize_vmemmap: Some(false),
        dirty: DirtyLimit { ratio: Some(20), bytes: Some(0) },
        dirty_background: DirtyLimit { ratio: Some(10), bytes: Some(0) },
        busy_read: Some(0),
        busy_poll: Some(0),
        link_power_policy: Some("default".to_owned()),
    };
    let quiet =
        |pid| MemoryGroup { pid, high: Some(0), max: Some(0), oom: Some(0), swap: Some(0), ..MemoryGroup::default() };
    host.memory_groups = host.guests.iter().map(|guest| quiet(guest.pid)).collect();
    let bridge = NetworkInterface {
        name: "br0".to_owned(),
        kind: Some("bridge".to_owned()),
        mtu: Some(1500),
        ..NetworkInterface::default()
    };
    let uplink = &mut host.network_interfaces[0];
    (uplink.speed, uplink.mtu, uplink.master) = (Some(10_000), Some(1500), Some("br0".to_owned()));
    host.network_interfaces.push(bridge);
}

/// What rules about kernel, power, swap, file systems and cards look at.
fn facts_of_all_layers(host: &mut Host) {
    let sysctl = |(name, value): (&str, i64)| Sysctl { name: name.to_owned(), value };
    let system = &mut host.system;
    system.sysctls = [
        ("kernel.nmi_watchdog", 0),
        ("kernel.sched_rt_runtime_us", -1),
        ("kernel.split_lock_mitigate", 0),
        ("kernel.timer_migration", 0),
        ("vm.stat_interval", 10),
    ]
    .map(sysctl)
    .to_vec();
    system.processor_flags = Some(["cat_l3", "nonstop_tsc", "split_lock_detect"].map(str::to_owned).to_vec());
    system.bridge_filters = Some(vec![sysctl(("net.bridge.bridge-nf-call-iptables", 0))]);
    system.tuned = Some(TunedProfile::Active("realtime-virtual-host".to_owned()));
    system.boost = Some(Boost { allowed: true, path: "/sys/devices/system/cpu/intel_pstate/no_turbo".to_owned() });
    system.idle_latency_limit = Some(2_000_000_000);
    system.idle_driver = Some("intel_idle".to_owned());
    let state = |(number, name, latency, disabled): (u32, &str, u64, bool)| IdleState {
        number,
        name: Some(name.to_owned()),
        latency: Some(latency),
        disabled: Some(disabled),
    };
    let states = |cpu, deep: bool| {
        let states = [(0, "POLL", 0, false), (1, "C1", 2, false), (2, "C6", 133, !deep)];
        IdleStates { cpu, latency_limit: None, states: states.map(state).to_vec() }
    };
    // The isolated PU 4 rests lightly, the others as they like.
    system.idle_states = vec![states(0, true), states(4, false), states(8, true)];
    system.throttling = vec![Throttling { cpu: 0, package: Some(0), count: Some(0), time: Some(0) }];
    system.uptime = Some(DAY);
    system.swap = Some(vec![SwapArea { name: "/dev/sda2".to_owned(), size: Bytes::from_mib(1024), used: Bytes::ZERO }]);
    system.swappiness = Some(10);
    (system.ksm_across_nodes, system.ksm_shared_pages) = (Some(false), Some(0));
    system.kvm_accelerates = Some(true);
    system.memory_total = Some(Bytes::from_mib(2 * (128 << 10)));
    (system.libvirt_version, system.qemu_version) = (Some("10.0.0".to_owned()), Some("9.2.0".to_owned()));
    for guest in &mut host.guests {
        guest.swapped = Some(Bytes::ZERO);
        let vcpus = guest.threads.iter().filter_map(|thread| match thread.role {
            ThreadRole::Vcpu(vcpu) => Some((vcpu, 1_000_000_000)),
            _ => None,
        });
        guest.vcpu_waits = vcpus.collect();
    }
    let mount = |(point, kind): (&str, &str)| Mount {
        point: point.to_owned(),
        kind: kind.to_owned(),
        source: String::new(),
        number: None,
        options: vec!["rw".to_owned(), "relatime".to_owned()],
    };
    host.mounts =
        Some([("/", "ext4"), ("/images", "xfs"), ("/pool", "btrfs"), ("/usb", "fuseblk")].map(mount).to_vec());
    host.images = vec![ImageFile {
        path: "/images/nfv.raw".to_owned(),
        place: Some("/pool/nfv.raw".to_owned()),
        no_copy_on_write: Some(true),
        ..ImageFile::default()
    }];
    for device in &mut host.pci_devices {
        device.dma_domain = Some("DMA-FQ".to_owned());
    }
    host.block_devices[0].requests = Some(1_000_000);
    host.network_interfaces[0].offloads = [
        ("rx-checksumming", true),
        ("tx-checksumming", true),
        ("scatter-gather", true),
        ("tcp-segmentation-offload", true),
        ("generic-segmentation-offload", true),
        ("generic-receive-offload", true),
        ("large-receive-offload", false),
    ]
    .map(|(name, on)| Offload { name: name.to_owned(), on, fixed: false })
    .to_vec();
    let group = |path: &str, version, cpus: &str, partition: &str| Cpuset {
        path: path.to_owned(),
        version,
        cpus: Some(cpus.parse().unwrap()),
        partition: Some(partition.to_owned()),
        spread_page: (version == 1).then_some(false),
        spread_slab: (version == 1).then_some(false),
        ..Cpuset::default()
    };
    host.cpusets = vec![group("/machine", 1, "0-31", "member"), group("/ovs.slice", 2, "19", "isolated")];
    // The card on node 0 stays with its driver, as mlx5 does.
    let port = DpdkPort { name: "dpdk0".to_owned(), function: host.network_interfaces[0].pci };
    host.open_vswitch = Some(OpenVswitch { dpdk: true, polling_cpus: Some(CpuSet::one(19)), ports: vec![port] });
}
