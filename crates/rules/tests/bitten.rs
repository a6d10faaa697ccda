//! What users were bitten by, each told as the trouble they had.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::Example;
use nearmetal_host::ImageFile;
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_rules::RULES;
use nearmetal_units::{Bytes, CpuSet};

/// Lines of one rule among all that is found.
fn of(example: &Example, rule: &str) -> Vec<String> {
    example.findings().into_iter().filter(|line| line.starts_with(&format!("{rule} "))).collect()
}

#[test]
fn siblings_are_the_kernels_and_not_neighbours_in_number() {
    // Pins of a guide for a machine whose siblings are 0,1 and 2,3.
    let mut example = Example::clean();
    for (vcpu, (old, new)) in [("1", "2"), ("17", "3"), ("2", "6"), ("18", "7")].into_iter().enumerate() {
        let pin = |pu| format!("vcpu='{vcpu}' cpuset='{pu}'");
        example.replace("db", &pin(old), &pin(new));
        example.process("db").threads[vcpu].affinity = Some(new.parse().unwrap());
    }
    let found = of(&example, "cpu-topology-honest");
    assert_eq!(found, ["cpu-topology-honest db: vCPUs 0 and 1", "cpu-topology-honest db: vCPUs 2 and 3"]);
    let adjacent = Synthetic::new().packages(2).cores_per_node(8).threads(2).numbering(Numbering::Adjacent);
    let guests = std::mem::take(&mut example.host.guests);
    example.host = adjacent.memory_per_node(Bytes::from_mib(128 << 10)).build();
    example.host.guests = guests;
    // There they are right; what is wrong now is `rt`, whose two cores have become one.
    assert_eq!(of(&example, "cpu-topology-honest"), ["cpu-topology-honest rt: CPU topology"]);
}

#[test]
fn pages_asked_for_as_one_number_are_split_unevenly_and_the_guest_does_not_start() {
    let mut example = Example::clean();
    for (node, pages) in [1290, 758].into_iter().enumerate() {
        let pool = &mut example.host.nodes[node].pools[0];
        (pool.total, pool.free) = (pages, pages);
    }
    // The domain gpu asks 2048 pages of 2 MiB from node 0: the sum is enough, the node is not.
    assert_eq!(of(&example, "hugetlb-pool-sized-per-node"), ["hugetlb-pool-sized-per-node gpu (defined): node 0"]);
    assert_eq!(of(&example, "hugepages-uneven-over-nodes"), ["hugepages-uneven-over-nodes host: pages of 2 MiB"]);
}

#[test]
fn cells_of_equal_memory_have_unequal_vcpus() {
    let mut example = Example::clean();
    example.replace("hpc", "cpus='0-9'", "cpus='0-15'");
    example.replace("hpc", "cpus='10-19'", "cpus='16-19'");
    assert!(of(&example, "numa-guest-topology-when-wide").iter().any(|line| line.ends_with(": cells")));
}

#[test]
fn the_device_is_on_another_node_than_the_guest() {
    let mut example = Example::clean();
    example.host.pci_devices.iter_mut().for_each(|device| device.node = Some(1));
    assert_eq!(of(&example, "pci-device-numa-local").len(), 3);
    // The firmware says nothing of its node: nothing can be said of its distance.
    example.host.pci_devices.iter_mut().for_each(|device| device.node = None);
    assert_eq!(of(&example, "pci-device-numa-local"), Vec::<String>::new());
}

#[test]
fn numad_and_the_kernels_balancing_fight_static_pins() {
    let mut example = Example::clean();
    example.replace("db", "<memory mode='strict' nodeset='0'/>", "<memory mode='strict' placement='auto'/>");
    assert_eq!(of(&example, "numad-beside-static-pins"), ["numad-beside-static-pins db: <numatune>"]);
    let mut example = Example::clean();
    example.texts.retain(|(name, ..)| name != "web");
    assert_eq!(of(&example, "numa-autobalancing-off-when-pinned").len(), 1);
    example.host.system.numa_balancing = Some(0);
    assert_eq!(of(&example, "numa-autobalancing-off-when-pinned"), Vec::<String>::new());
}

#[test]
fn memory_is_bound_to_the_vcpus_nodes_only_where_these_have_room_for_it() {
    let cures = |example: &Example| {
        let findings = example.examine([nearmetal_rules::rule("numa-numatune-strict").unwrap()]).findings;
        let of_db = findings.iter().find(|finding| finding.place().starts_with("db"))?;
        let cures = of_db.objects.iter().flat_map(|object| &object.cures).map(ToString::to_string);
        Some(cures.collect::<Vec<_>>())
    };
    let nodeset = || "numatune/memory/@nodeset = 0".to_owned();
    let mut wide = Example::clean();
    wide.replace("db", "nodeset='0'", "nodeset='0-1'");
    let mut free = Example::clean();
    free.replace("db", "  <numatune><memory mode='strict' nodeset='0'/></numatune>\n", "");
    assert_eq!(cures(&wide), Some(vec![nodeset()]));
    assert_eq!(cures(&free), Some(vec!["numatune/memory/@mode = strict".to_owned(), nodeset()]));
    // Node 0 is full, and half of the guest is on node 1.
    for example in [&mut wide, &mut free] {
        example.host.nodes[0].memory_free = Some(Bytes::from_mib(2048));
        let pages = &mut example.process("db").residency[0].pages;
        *pages = vec![(0, pages[0].1 / 2), (1, pages[0].1 / 2)];
    }
    assert_eq!((cures(&wide), cures(&free)), (None, Some(vec![])));
    // Nor is one that only prefers a node that is full to be held to it.
    let mut preferred = Example::clean();
    preferred.replace("db", "mode='strict'", "mode='preferred'");
    assert_eq!(cures(&preferred).unwrap().len(), 1);
    preferred.host.nodes = wide.host.nodes.clone();
    preferred.process("db").residency.clear();
    assert_eq!(cures(&preferred), Some(vec![]));
}

#[test]
fn a_node_of_processors_alone_gives_no_memory() {
    let mut example = Example::clean();
    // Its vCPUs are on both nodes.
    example.without("hpc");
    example.host.nodes[0].memory_total = Some(Bytes::ZERO);
    example.replace("db", "nodeset='0'", "nodeset='1'");
    assert_eq!(of(&example, "numa-numatune-strict"), Vec::<String>::new());
}

#[test]
fn interrupts_of_other_devices_land_on_the_guests_pus_and_its_own_may() {
    let mut example = Example::clean();
    example.host.interrupts[0].effective = Some(CpuSet::one(4));
    assert_eq!(of(&example, "irq-affinity-off-isolated"), ["irq-affinity-off-isolated rt: interrupt 30 (nvme0q1)"]);
    // The drive's queue of that PU alone: nobody else's I/O comes in there, and the kernel moves it nowhere.
    example.host.interrupts[0].affinity = Some(CpuSet::one(4));
    assert_eq!(of(&example, "irq-affinity-off-isolated"), Vec::<String>::new());
    example.host.interrupts[0].affinity = Some("0-15".parse().unwrap());
    example.host.interrupts[0].device = Some("0000:02:00.2".parse().unwrap());
    assert_eq!(of(&example, "irq-affinity-off-isolated"), Vec::<String>::new());
}

#[test]
fn a_guest_whose_threads_were_set_free_is_still_what_it_was_meant_to_be() {
    let (_, text, _) = common::DOMAINS.iter().find(|(name, ..)| *name == "db").unwrap();
    let facts = |text: &str| nearmetal_domain::DomainXml::parse(text).unwrap().facts().unwrap();
    let meant = facts(&text.replacen(">throughput<", ">nonsense<", 1));
    let mut freed = meant.clone();
    freed.vcpu_pins.clear();
    let domain = nearmetal_rules::Domain::new(Some(meant), Some(freed), None).unwrap();
    assert_eq!(domain.class.word(), "throughput");
}

#[test]
fn a_long_kernel_command_line_loses_its_end() {
    let mut example = Example::clean();
    let list: Vec<String> = (0..400).map(|pu| pu.to_string()).collect();
    example.host.system.command_line = Some(format!("ro nohz_full={} rcu_nocbs=1-399 isolcpus=1-399", list.join(",")));
    assert_eq!(of(&example, "command-line-near-limit"), Vec::<String>::new());
    example.host.system.command_line = Some(format!("ro nohz_full={0} rcu_nocbs={0}", list.join(",")));
    assert_eq!(of(&example, "command-line-near-limit").len(), 1);
}

#[test]
fn nodes_without_memory_give_none_and_are_no_place_to_fit_in() {
    let mut example = Example::clean();
    example.host.nodes[1].memory_total = Some(Bytes::ZERO);
    assert_eq!(of(&example, "memory-on-memoryless-node"), ["memory-on-memoryless-node hpc (defined): memory"]);
    // One node with memory is left: there is no choice to make.
    assert_eq!(of(&example, "numa-vm-fits-node"), Vec::<String>::new());
}

#[test]
fn pus_that_are_offline_carry_no_thread() {
    let mut example = Example::clean();
    example.host.processors[17].online = false;
    let found = of(&example, "pin-on-offline-cpu");
    assert_eq!(found, ["pin-on-offline-cpu db: vCPU 1"]);
}

#[test]
fn the_guest_takes_several_caches_for_one() {
    let mut example = Example::clean();
    for processor in &mut example.host.processors {
        let first = processor.index % 16 / 2 * 2;
        processor.last_level_cache = Some([first, first + 1].into_iter().collect());
    }
    assert_eq!(of(&example, "guest-l3-wider-than-host").len(), 1);
}

#[test]
fn two_guests_share_a_pu_and_the_kernel_knows_better_than_the_definition() {
    let mut example = Example::clean();
    example.replace("rt", "vcpu='1' cpuset='5'", "vcpu='1' cpuset='18'");
    example.process("rt").threads[1].affinity = Some(CpuSet::one(18));
    let found = of(&example, "two-domains-on-one-pu");
    assert_eq!(found, ["two-domains-on-one-pu db: vCPU 3", "two-domains-on-one-pu rt: vCPU 1"]);
    // Moved behind libvirt's back: no definition shows it.
    let mut example = Example::clean();
    example.process("rt").threads[1].affinity = Some(CpuSet::one(18));
    assert_eq!(of(&example, "two-domains-on-one-pu"), ["two-domains-on-one-pu rt (running): vCPU 1"]);
}

#[test]
fn kvm_is_there_and_only_emulates() {
    let mut example = Example::clean();
    // /dev/kvm exists and every definition says kvm: guests are thousands of times slower all the same.
    example.host.system.kvm_accelerates = Some(false);
    assert_eq!(of(&example, "kvm-runs-on-processor"), ["kvm-runs-on-processor host: KVM of this host"]);
    assert_eq!(of(&example, "kvm-hw-accel-in-use"), Vec::<String>::new());
    // Nor does a host have to have guests for it.
    example.texts.clear();
    assert_eq!(of(&example, "kvm-runs-on-processor").len(), 1);
    // Nobody tried: nothing is said to be well.
    example.host.system.kvm_accelerates = None;
    let examination = example.examine([nearmetal_rules::rule("kvm-runs-on-processor").unwrap()]);
    assert!(examination.findings.is_empty() && examination.cannot_tell.len() == 1, "{examination:?}");
}

/// `lost`, `kept` or `cannot tell`: what the rule says of the disk of `db` with these versions, bus, machine and driver.
fn flushes(qemu: &str, libvirt: &str, machine: &str, disk: &str) -> &'static str {
    let mut example = Example::clean();
    (example.host.system.qemu_version, example.host.system.libvirt_version) =
        (Some(qemu.to_owned()).filter(|text| !text.is_empty()), Some(libvirt.to_owned()));
    example.replace("db", "pc-q35-9.2", machine);
    let text = &mut example.texts.iter_mut().find(|(name, ..)| name == "db").unwrap().1;
    let (from, to) = (text.find("<disk ").unwrap(), text.find("</disk>").unwrap() + "</disk>".len());
    text.replace_range(from..to, disk);
    example.texts.retain(|(name, ..)| name == "db");
    let examination = example.examine([nearmetal_rules::rule("disk-write-through-flushed").unwrap()]);
    match (examination.findings.is_empty(), examination.cannot_tell.is_empty()) {
        (false, _) => "lost",
        (true, false) => "cannot tell",
        (true, true) => "kept",
    }
}

/// A disk of `type` block, file or volume, as libvirt writes it.
fn disk(kind: &str, bus: &str, driver: &str) -> String {
    let source = match kind {
        "volume" => "pool='vms' volume='db'",
        "file" => "file='/images/db.raw'",
        _ => "dev='/dev/nvme0n1'",
    };
    format!(
        "<disk type='{kind}' device='disk'><driver name='qemu' type='raw' {driver}/><source {source}/>\
         <target dev='sdz' bus='{bus}'/></disk>"
    )
}

#[test]
fn a_write_called_safe_was_gone_after_the_power_loss() {
    let (through, direct) = ("cache='writethrough'", "cache='directsync'");
    let table = [
        // What was measured: worker threads, from 10.0.3 on, whatever holds the image.
        ("10.0.13", "10.0.0", "pc-q35-9.2", disk("block", "virtio", through), "lost"),
        ("11.1.3", "11.0.0", "pc-q35-9.2", disk("file", "virtio", direct), "lost"),
        ("11.1.3", "11.0.0", "pc-q35-9.2", disk("volume", "virtio", through), "lost"),
        ("11.1.3", "11.0.0", "pc-q35-9.2", disk("block", "virtio", "cache='directsync' io='io_uring'"), "kept"),
        ("11.1.3", "11.0.0", "pc-q35-9.2", disk("block", "virtio", "cache='none'"), "kept"),
        // A build between the two changes may have the second.
        ("10.0.0", "11.0.0", "pc-q35-9.2", disk("block", "virtio", through), "cannot tell"),
        ("10.0.0", "11.0.0", "pc-q35-9.2", disk("block", "virtio", "cache='none'"), "kept"),
        ("", "11.0.0", "pc-q35-9.2", disk("block", "virtio", through), "cannot tell"),
        // Guests' own FUA writes: on SCSI, with a machine type that shows it. cache=none is no cure there.
        ("10.1.0", "11.0.0", "pc-q35-10.1", disk("block", "scsi", "cache='none'"), "lost"),
        ("10.1.0", "11.0.0", "pc-q35-10.1", disk("block", "scsi", ""), "lost"),
        ("10.1.0", "11.0.0", "q35", disk("block", "scsi", "cache='none' io='threads'"), "lost"),
        ("10.1.0", "11.0.0", "pc-q35-10.1", disk("block", "scsi", "cache='none' io='native'"), "kept"),
        ("10.1.0", "11.0.0", "pc-q35-10.1", disk("block", "scsi", "cache='unsafe'"), "kept"),
        ("10.1.0", "11.0.0", "pc-q35-10.0", disk("block", "scsi", "cache='none'"), "kept"),
        ("10.1.0", "11.0.0", "pc-q35-rhel10.2.0", disk("block", "scsi", "cache='none'"), "cannot tell"),
        ("10.0.13", "11.0.0", "pc-q35-10.0", disk("block", "scsi", "cache='none'"), "kept"),
        // Before 10.0 libvirt's raw layer kept it, with any engine.
        ("9.2.0", "11.0.0", "pc-q35-9.2", disk("block", "virtio", "cache='directsync' io='native'"), "lost"),
        ("9.2.0", "10.10.0", "pc-q35-9.2", disk("block", "virtio", through), "kept"),
        ("8.2.0", "11.0.0", "pc-q35-8.2", disk("block", "virtio", through), "kept"),
    ];
    for (qemu, libvirt, machine, disk, expected) in table {
        assert_eq!(
            flushes(qemu, libvirt, machine, &disk),
            expected,
            "QEMU {qemu}, libvirt {libvirt}, {machine}: {disk}"
        );
    }
}

#[test]
fn a_drive_without_a_volatile_cache_loses_nothing_that_went_past_the_page_cache() {
    let lost = |cache: &str, queue: &str| {
        let mut example = Example::clean();
        example.host.system.qemu_version = Some("10.0.13".to_owned());
        example.replace("db", "cache='none' io='native'", &format!("cache='{cache}'"));
        let drive = example.host.block_devices.iter_mut().find(|device| device.name == "nvme0n1").unwrap();
        drive.queue.write_cache = Some(queue.to_owned());
        of(&example, "disk-write-through-flushed").len()
    };
    assert_eq!(lost("directsync", "write back"), 1);
    assert_eq!(lost("directsync", "write through"), 0);
    assert_eq!(lost("writethrough", "write through"), 1, "what is in the page cache is lost with any drive");
}

#[test]
fn the_cure_of_a_missed_flush_depends_on_bus_and_engine() {
    let cures = |class: &str, uring: u32, bus: &str, cache: &str| {
        let mut example = Example::clean();
        example.replace("db", ">throughput<", &format!(">{class}<"));
        (example.host.system.qemu_version, example.host.system.io_uring_disabled) =
            (Some("10.1.0".to_owned()), Some(uring.into()));
        example.replace("db", "cache='none' io='native' iothread='1'", &format!("cache='{cache}'"));
        example.replace("db", "bus='virtio'", &format!("bus='{bus}'"));
        let found = example.examine([nearmetal_rules::rule("disk-write-through-flushed").unwrap()]).findings;
        found[0].objects[0].wanted.clone()
    };
    assert_eq!(cures("general", 0, "virtio", "writethrough"), "io='io_uring', or cache='none'");
    assert_eq!(cures("general", 2, "virtio", "directsync"), "io='native', or cache='none'");
    assert_eq!(cures("general", 2, "virtio", "writethrough"), "cache='none'");
    assert_eq!(cures("general", 0, "scsi", "writethrough"), "io='io_uring'");
    assert_eq!(cures("general", 2, "scsi", "writethrough"), "cache='none' and io='native'");
    // As the rules about speed have it.
    for (uring, bus) in [(0, "virtio"), (2, "virtio"), (0, "scsi"), (2, "scsi")] {
        assert_eq!(cures("throughput", uring, bus, "writethrough"), "cache='none' and io='native'");
    }
    assert_eq!(cures("throughput", 0, "virtio", "directsync"), "io='native', or cache='none'");
    assert_eq!(cures("latency", 0, "scsi", "directsync"), "io='native'");
}

#[test]
fn no_two_rules_ask_for_different_engines_of_one_disk() {
    for (cache, uring) in [("writethrough", 0), ("writethrough", 2), ("directsync", 0), ("directsync", 2)] {
        let mut example = Example::clean();
        (example.host.system.qemu_version, example.host.system.io_uring_disabled) =
            (Some("10.1.0".to_owned()), Some(uring));
        example.replace("db", "cache='none' io='native'", &format!("cache='{cache}'"));
        let findings = example.examine(RULES).findings;
        let mut asked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let of_db = findings.iter().filter(|finding| finding.place().starts_with("db"));
        for cure in of_db.flat_map(|finding| &finding.objects).flat_map(|object| &object.cures) {
            let line = cure.to_string();
            let Some((place, value)) = line.split_once(" = ") else { continue };
            asked.entry(place.to_owned()).or_default().insert(value.to_owned());
        }
        let flushed = findings.iter().find(|finding| finding.rule == "disk-write-through-flushed").unwrap();
        assert!(!flushed.objects[0].cures.is_empty());
        assert!(asked.values().all(|values| values.len() == 1), "{cache}, io_uring_disabled {uring}: {asked:?}");
    }
}

#[test]
fn a_file_system_that_takes_no_o_direct_keeps_the_guest_of_a_cure_from_starting() {
    // What cures the findings of a rule about the disk of `name`, before and after its file was seen to refuse O_DIRECT.
    let cures = |name: &str, from: &str, to: &str, rule: &str| {
        let mut example = Example::clean();
        (example.host.system.qemu_version, example.host.system.io_uring_disabled) =
            (Some("10.1.0".to_owned()), Some(2));
        example.replace(name, from, to);
        let text = &example.texts.iter().find(|(known, ..)| known == name).unwrap().1;
        let path = text.split("<source file='").nth(1).unwrap().split('\'').next().unwrap().to_owned();
        let found = |example: &Example| {
            let findings = example.examine([nearmetal_rules::rule(rule).unwrap()]).findings;
            let of_it = findings.into_iter().find(|finding| finding.place().starts_with(name)).unwrap();
            let cures = of_it.objects[0].cures.iter().map(ToString::to_string);
            cures.filter_map(|line| Some(line.split_once("/driver/@")?.1.to_owned())).collect::<Vec<_>>()
        };
        let before = found(&example);
        example.host.images.retain(|image| image.path != path);
        example.host.images.push(ImageFile { path, direct: Some(false), ..ImageFile::default() });
        (before, found(&example))
    };
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let unsafe_cache = cures("web", "type='qcow2'", "type='qcow2' cache='unsafe'", "disk-cache-none");
    assert_eq!(unsafe_cache, (lines(&["cache = none"]), lines(&[])));
    let native = cures("win", " cache='none'", "", "disk-io-native-or-uring");
    assert_eq!(native, (lines(&["cache = none"]), lines(&["io = threads"])));
    let flushed = cures("nfv", "type='raw'", "type='raw' cache='writethrough'", "disk-write-through-flushed");
    assert_eq!(flushed, (lines(&["cache = none"]), lines(&[])));
}

#[test]
fn an_isolated_partition_of_control_groups_is_a_place_for_real_time_vcpus() {
    const RULE: &str = "rt-throttle-off-for-fifo-vcpus";
    let mut example = Example::clean();
    example.host.cpusets[1].effective_cpus = Some("4-5,19".parse().unwrap());
    // Whether the kernel command line isolates some, or nobody knows.
    for isolated in [Some(CpuSet::new()), None] {
        example.host.system.isolated = isolated;
        example.sysctl("kernel.sched_rt_runtime_us", -1);
        assert!(example.examine([nearmetal_rules::rule(RULE).unwrap()]).cannot_tell.is_empty());
        assert_eq!(of(&example, RULE), Vec::<String>::new());
        example.sysctl("kernel.sched_rt_runtime_us", 950_000);
        assert_eq!(of(&example, RULE), [format!("{RULE} host: kernel.sched_rt_runtime_us")]);
    }
    // Neither covers them.
    example.host.cpusets[1].effective_cpus = None;
    assert_eq!(example.examine([nearmetal_rules::rule(RULE).unwrap()]).cannot_tell.len(), 1);
}

#[test]
fn a_throw_away_overlay_is_left_in_the_definition() {
    let mut example = Example::clean();
    example.replace("web", "/images/web.qcow2", "/images/web.qcow2.TRANSIENT-web");
    // While it runs that is where it belongs.
    assert_eq!(of(&example, "transient-overlay-left"), ["transient-overlay-left web (defined): disk vda"]);
}

#[test]
fn what_the_processor_cannot_do_is_not_called_off() {
    let mut example = Example::clean();
    let avic = nearmetal_host::Setting { name: "kvm_amd.avic".to_owned(), value: "N".to_owned() };
    example.host.system.module_parameters = vec![avic];
    example.host.system.processor_flags = None;
    assert_eq!(of(&example, "kvm-apicv-avic-active").len(), 1);
    example.replace("rt", "<feature policy='require' name='invtsc'/>", "");
    assert_eq!(of(&example, "tsc-invariant-when-static").len(), 1);
    example.host.system.processor_flags = Some(vec!["npt".to_owned(), "svm".to_owned()]);
    assert_eq!(of(&example, "kvm-apicv-avic-active"), Vec::<String>::new());
    assert_eq!(of(&example, "tsc-invariant-when-static"), Vec::<String>::new());
}
