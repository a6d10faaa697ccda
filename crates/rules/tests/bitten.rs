//! What users were bitten by, each told as the trouble they had.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::Example;
use nearmetal_host::synthetic::{Numbering, Synthetic};
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
    let cures = |uring: u32, bus: &str, cache: &str| {
        let mut example = Example::clean();
        (example.host.system.qemu_version, example.host.system.io_uring_disabled) =
            (Some("10.1.0".to_owned()), Some(uring.into()));
        example.replace("db", "cache='none' io='native' iothread='1'", &format!("cache='{cache}'"));
        example.replace("db", "bus='virtio'", &format!("bus='{bus}'"));
        let found = example.examine([nearmetal_rules::rule("disk-write-through-flushed").unwrap()]).findings;
        found[0].objects[0].wanted.clone()
    };
    assert_eq!(cures(0, "virtio", "writethrough"), "io='io_uring', or cache='none'");
    assert_eq!(cures(2, "virtio", "directsync"), "io='native', or cache='none'");
    assert_eq!(cures(2, "virtio", "writethrough"), "cache='none'");
    assert_eq!(cures(0, "scsi", "writethrough"), "io='io_uring'");
    assert_eq!(cures(2, "scsi", "writethrough"), "cache='none' and io='native'");
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
