//! Facts no kept machine shows: built file by file.

#![allow(clippy::unwrap_used, reason = "a tree that cannot be built is a failed test")]

mod common;

use common::Tree;
use nearmetal_host::{AccessControl, Host, invariants, text};
use nearmetal_units::Bytes;

const CPU: &str = "/sys/devices/system/cpu";
const PORT: &str = "/sys/devices/pci0000:20/0000:20:00.0";
const CARD: &str = "/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0";

fn machine() -> Tree {
    let tree = Tree::new();
    tree.file(&format!("{CPU}/online"), "0-3\n");
    for cpu in 0..4 {
        tree.files(
            &format!("{CPU}/cpu{cpu}/topology"),
            &[
                ("physical_package_id", "0\n"),
                ("core_id", &format!("{cpu}\n")),
                ("core_cpus_list", &format!("{cpu}\n")),
            ],
        );
        tree.files(
            &format!("{CPU}/cpufreq/policy{cpu}"),
            &[
                ("scaling_driver", "intel_pstate\n"),
                ("scaling_governor", if cpu < 3 { "performance\n" } else { "powersave\n" }),
            ],
        );
    }
    tree.file("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:         4194304 kB\n");
    for (path, class) in [(PORT, "0x060400\n"), (CARD, "0x020000\n")] {
        tree.files(path, &[("class", class), ("vendor", "0x15b3\n"), ("device", "0x1017\n"), ("numa_node", "0\n")]);
        let name = path.rsplit('/').next().unwrap();
        tree.link(&format!("/sys/bus/pci/devices/{name}"), format!("../../..{}", path.strip_prefix("/sys").unwrap()));
    }
    tree
}

fn read(tree: &Tree) -> Host {
    let host = Host::read(&tree.fs());
    assert_eq!(host.unreadable, []);
    assert_eq!(invariants::check(&host), []);
    let _ = text::render(&host);
    host
}

#[test]
fn settings_of_the_machine_are_read_or_unknown() {
    let tree = machine();
    assert_eq!(read(&tree).system.isolated, None);
    tree.files(CPU, &[("isolated", "2-3\n"), ("nohz_full", "  (null)\n"), ("smt/control", "notsupported\n")]);
    tree.files(&format!("{CPU}/cpuidle"), &[("current_driver", "intel_idle\n"), ("current_governor_ro", "menu\n")]);
    tree.file(&format!("{CPU}/vulnerabilities/meltdown"), "Mitigation: PTI\n");
    tree.files("/sys/kernel/mm", &[("ksm/run", "1\n"), ("transparent_hugepage/defrag", "always [madvise] never\n")]);
    tree.files("/proc/sys/vm", &[("swappiness", "60\n"), ("zone_reclaim_mode", "0\n")]);
    tree.file("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    tree.files("/sys/module/kvm_intel/parameters", &[("nested", "Y\n"), ("ple_gap", "128\n")]);
    tree.files(
        "/sys/kernel/mm/hugepages/hugepages-2048kB",
        &[("nr_hugepages", "8\n"), ("free_hugepages", "6\n"), ("resv_hugepages", "2\n"), ("surplus_hugepages", "0\n")],
    );
    let system = read(&tree).system;
    assert_eq!((system.isolated.unwrap().to_string(), system.nohz_full.unwrap().len()), ("2-3".to_owned(), 0));
    assert_eq!((system.smt.as_deref(), system.clocksource.as_deref()), (Some("notsupported"), Some("tsc")));
    assert_eq!((system.idle_driver.as_deref(), system.idle_governor.as_deref()), (Some("intel_idle"), Some("menu")));
    assert_eq!((system.ksm, system.swappiness, system.zone_reclaim_mode), (Some(1), Some(60), Some(0)));
    let policies: Vec<String> = system.frequency.iter().map(|policy| policy.cpus.to_string()).collect();
    assert_eq!(policies, ["0-2", "3"], "one entry for each driver and governor");
    let names: Vec<&str> = system.module_parameters.iter().map(|setting| setting.name.as_str()).collect();
    assert_eq!(names, ["kvm_intel.nested", "kvm_intel.ple_gap"]);
    assert_eq!(system.vulnerabilities[0].value, "Mitigation: PTI");
    assert_eq!(system.hugepages[0].available(), Some(Bytes::from_mib(8)));
}

#[test]
fn functions_tell_link_regions_resets_and_bridge() {
    let tree = machine();
    tree.files(
        CARD,
        &[
            ("current_link_speed", "8.0 GT/s PCIe\n"),
            ("current_link_width", "8\n"),
            ("max_link_speed", "16.0 GT/s PCIe\n"),
            ("max_link_width", "16\n"),
            ("reset_method", "flr bus\n"),
            ("resource", "0x00000000fe000000 0x00000000ffffffff 0x000000000014220c\n"),
        ],
    );
    tree.file(&format!("{PORT}/config"), vec![0; 256]);
    let host = read(&tree);
    let [port, card] = &host.pci_devices[..] else { unreachable!() };
    assert_eq!((port.parent, card.parent), (None, Some(port.address)));
    let link = card.link.unwrap();
    assert_eq!((link.speed, link.width, link.max_speed, link.max_width), (Some(8000), Some(8), Some(16_000), Some(16)));
    assert_eq!(card.resets.as_deref(), Some(&["flr".to_owned(), "bus".to_owned()][..]));
    assert_eq!((card.bars[0].size, card.bars[0].wide), (Bytes::from_mib(32), true));
    assert_eq!((port.link, port.resets.clone(), port.access_control), (None, None, None), "conventional PCI");
    tree.file(&format!("{PORT}/config"), vec![0; 4096]);
    assert_eq!(read(&tree).pci_devices[0].access_control, Some(AccessControl::Absent));
    tree.file(&format!("{PORT}/config"), vec![0; 64]);
    let host = read(&tree);
    assert_eq!((host.pci_devices[0].access_control, host.denied.len()), (None, 1), "root would see it");
}

#[test]
fn interrupts_belong_to_functions_and_go_to_processors() {
    let tree = machine();
    tree.file(&format!("{CARD}/msi_irqs/40"), "msix\n");
    tree.files("/proc/irq/40", &[("smp_affinity_list", "0-3\n"), ("effective_affinity_list", "2\n")]);
    tree.files("/proc/irq/9", &[("smp_affinity_list", "0-3\n")]);
    tree.file("/proc/irq/default_smp_affinity", "f\n");
    tree.files("/sys/kernel/irq", &[("40/actions", "mlx5_comp0@pci:0000:21:00.0\n"), ("9/actions", "acpi\n")]);
    let host = read(&tree);
    let [power, card] = &host.interrupts[..] else { unreachable!() };
    assert_eq!((power.number, power.device, power.effective.clone()), (9, None, None));
    assert_eq!(card.device.unwrap().to_string(), "0000:21:00.0");
    assert_eq!(card.actions, ["mlx5_comp0@pci:0000:21:00.0"]);
    assert_eq!((card.affinity.clone().unwrap().len(), card.effective.clone().unwrap().to_string().as_str()), (4, "2"));
}

#[test]
fn stacked_disks_and_virtual_functions_say_what_they_are() {
    let tree = machine();
    let mapped = "/sys/devices/virtual/block/dm-0";
    tree.files(mapped, &[("size", "2048\n"), ("dm/uuid", "LVM-abc\n"), ("dm/name", "vg0-root\n")]);
    tree.directory(&format!("{mapped}/slaves/md0")).link("/sys/class/block/dm-0", "../../devices/virtual/block/dm-0");
    let raid = "/sys/devices/virtual/block/md0";
    tree.files(raid, &[("size", "2048\n"), ("md/level", "raid1\n")]);
    tree.directory(&format!("{raid}/holders/dm-0")).link("/sys/class/block/md0", "../../devices/virtual/block/md0");
    let place = format!("{CARD}/net/eth0");
    tree.files(
        &place,
        &[("operstate", "down\n"), ("speed", "-1\n"), ("mtu", "9000\n"), ("address", "02:00:00:00:00:01\n")],
    );
    tree.link("/sys/class/net/eth0", "../../devices/pci0000:20/0000:20:00.0/0000:21:00.0/net/eth0");
    tree.files("/sys/devices/virtual/net/br0", &[("operstate", "up\n"), ("uevent", "DEVTYPE=bridge\nINTERFACE=br0\n")]);
    tree.link("/sys/class/net/br0", "../../devices/virtual/net/br0");
    let host = read(&tree);
    let [volume, array] = &host.block_devices[..] else { unreachable!() };
    assert_eq!((volume.mapping.as_deref(), volume.mapped_name.as_deref()), (Some("LVM"), Some("vg0-root")));
    assert_eq!((volume.parts.join(" "), array.holders.join(" ")), ("md0".to_owned(), "dm-0".to_owned()));
    assert_eq!(array.raid_level.as_deref(), Some("raid1"));
    let [bridge, card] = &host.network_interfaces[..] else { unreachable!() };
    assert_eq!((bridge.kind.as_deref(), bridge.speed), (Some("bridge"), None));
    assert_eq!((card.speed, card.mtu, card.mac.as_deref()), (None, Some(9000), Some("02:00:00:00:00:01")));
}

#[test]
fn control_groups_of_both_versions_are_listed_if_they_limit() {
    let tree = machine();
    let root = "/sys/fs/cgroup";
    tree.files(
        root,
        &[("cgroup.controllers", "cpuset cpu\n"), ("cgroup.procs", "\n"), ("cpuset.cpus.effective", "0-3\n")],
    );
    for (group, cpus) in [("machine.slice", "2-3\n"), ("machine.slice/a.scope", "\n"), ("system.slice", "\n")] {
        tree.files(
            &format!("{root}/{group}"),
            &[
                ("cgroup.procs", "\n"),
                ("cpuset.cpus", cpus),
                ("cpuset.cpus.effective", "2-3\n"),
                ("cpuset.mems", "\n"),
                ("cpuset.mems.effective", "0\n"),
                ("cpuset.cpus.partition", "isolated\n"),
            ],
        );
    }
    let host = read(&tree);
    let [group] = &host.cpusets[..] else { panic!("{:?}", host.cpusets) };
    assert_eq!(
        (group.path.as_str(), group.version, group.partition.as_deref()),
        ("/machine.slice", 2, Some("isolated"))
    );
    assert_eq!(group.effective_cpus.clone().unwrap().to_string(), "2-3");

    let tree = machine();
    let root = "/sys/fs/cgroup/cpuset";
    for (group, cpus) in [("", "0-3\n"), ("/machine", "1\n")] {
        let directory = format!("{root}{group}");
        tree.files(
            &directory,
            &[("cgroup.procs", "\n"), ("cpuset.cpus", cpus), ("cpuset.mems", "0\n"), ("cpuset.cpu_exclusive", "1\n")],
        );
    }
    let host = read(&tree);
    let paths: Vec<_> = host.cpusets.iter().map(|group| (group.path.as_str(), group.version)).collect();
    assert_eq!(paths, [("/machine", 1)], "the root limits nobody");
    assert_eq!(host.cpusets[0].partition.as_deref(), Some("exclusive"));
}

#[test]
fn limits_of_memory_are_the_guests_and_a_flush_that_is_not_sent_shows() {
    let host = read(&Tree::of_text(include_str!("data/everything.txt")));
    let [group] = &host.memory_groups[..] else { panic!("{:?}", host.memory_groups) };
    assert_eq!((group.pid, group.path.as_str()), (4711, "/machine.slice/machine-qemu.scope"));
    assert_eq!((group.high, group.max, group.oom, group.swap), (Some(3), Some(0), Some(0), Some(4096)));
    let tree = Tree::of_text(include_str!("data/everything.txt"));
    tree.file("/proc/4711/cgroup", "0::/machine/qemu-1-db.libvirt-qemu/emulator\n");
    tree.file("/sys/fs/cgroup/machine/qemu-1-db.libvirt-qemu/memory.events", "high 1\nmax 0\noom 0\n");
    let host = read(&tree);
    assert_eq!(
        (host.memory_groups[0].path.as_str(), host.memory_groups[0].high),
        ("/machine/qemu-1-db.libvirt-qemu", Some(1))
    );
    let queue = &host.block_device("md0").unwrap().queue;
    assert_eq!((queue.rq_affinity, queue.nomerges, queue.forced_unit_access), (Some(1), Some(0), Some(true)));
    assert_eq!((queue.write_cache.as_deref(), queue.drive_cache.as_deref()), (Some("write back"), Some("write back")));
    let tuning = &host.tuning;
    assert_eq!(tuning.workqueue_cpus.as_ref().map(ToString::to_string).as_deref(), Some("0-3"));
    assert_eq!((tuning.dirty.ratio, tuning.dirty_background.ratio, tuning.busy_poll), (Some(20), Some(10), Some(0)));
    assert_eq!(tuning.hugetlb_optimize_vmemmap, Some(false));
    assert_eq!(tuning.link_power_policy.as_deref(), Some("default"));
}
