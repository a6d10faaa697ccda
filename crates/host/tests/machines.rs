//! Kinds of machines no fixture is kept of: built file by file.

#![allow(clippy::unwrap_used, reason = "a tree that cannot be built is a failed test")]

mod common;

use common::Tree;
use nearmetal_host::{Host, HugepagePool};
use nearmetal_units::{Bytes, PageSize};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";
const DRIVE: &str = "/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0";
const VIRTUAL: &str = "/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.1";

fn pci_function(tree: &Tree, path: &str, class: &str, node: &str) {
    tree.files(
        path,
        &[("class", class), ("vendor", "0x1b36\n"), ("device", "0x0010\n"), ("numa_node", &format!("{node}\n"))],
    );
    let name = path.rsplit('/').next().unwrap();
    tree.link(&format!("/sys/bus/pci/devices/{name}"), format!("../../..{}", path.strip_prefix("/sys").unwrap()));
}

fn one_cpu(tree: &Tree) {
    tree.file(&format!("{CPU}/online"), "0\n");
    tree.files(
        &format!("{CPU}/cpu0/topology"),
        &[("physical_package_id", "0\n"), ("core_id", "0\n"), ("core_cpus_list", "0\n")],
    );
    tree.file("/proc/meminfo", "MemTotal:        8388608 kB\nMemFree:         4194304 kB\n");
}

#[test]
fn a_kernel_without_numa_is_one_node_of_everything() {
    let tree = Tree::new();
    one_cpu(&tree);
    tree.files(
        "/sys/kernel/mm/hugepages/hugepages-2048kB",
        &[("nr_hugepages", "8\n"), ("free_hugepages", "3\n"), ("surplus_hugepages", "2\n")],
    );
    let host = Host::read(&tree.fs());
    let node = &host.nodes[0];
    assert_eq!((host.nodes.len(), node.index, node.cpus.to_string().as_str()), (1, 0, "0"));
    assert_eq!((node.memory_total, node.distance(0)), (Some(Bytes::from_mib(8192)), None));
    assert_eq!(node.pools, [HugepagePool { size: PageSize::HUGE_2M, total: 8, free: 3, surplus: 2 }]);
    assert_eq!(host.unreadable, []);
}

#[test]
fn old_kernels_give_masks_alone() {
    let tree = Tree::new();
    for cpu in 0..4 {
        let siblings = if cpu % 2 == 0 { "00000000,00000005\n" } else { "00000000,0000000a\n" };
        tree.files(
            &format!("{CPU}/cpu{cpu}/topology"),
            &[("physical_package_id", "-1\n"), ("core_id", "0\n"), ("thread_siblings", siblings)],
        );
        tree.files(
            &format!("{CPU}/cpu{cpu}/cache/index2"),
            &[("level", "2\n"), ("shared_cpu_map", "00000000,0000000f\n\n")],
        );
    }
    tree.file(&format!("{CPU}/cpu3/online"), "0\n");
    for (node, mask) in [(0, "00000005\n"), (4, "0000000a\n")] {
        tree.files(
            &format!("{NODE}/node{node}"),
            &[
                ("meminfo", &format!("\nNode {node} MemTotal: 1024 kB\nNode {node} MemFree: 512 kB\n")),
                ("cpumap", mask),
                ("distance", if node == 0 { "10 20\n" } else { "20 10\n" }),
            ],
        );
    }
    let host = Host::read(&tree.fs());
    assert_eq!(host.unreadable, []);
    assert_eq!(host.online().to_string(), "0-2");
    assert_eq!(host.nodes[1].cpus.to_string(), "1", "an offline PU is in no node");
    assert_eq!((host.nodes[1].index, host.nodes[1].distance(0), host.nodes[1].distance(4)), (4, Some(20), Some(10)));
    assert_eq!(host.processors[0].package, None);
    assert_eq!(host.processors[0].last_level_cache.as_ref().unwrap().to_string(), "0-2");
    assert_eq!(host.cores.iter().map(|core| core.cpus.to_string()).collect::<Vec<_>>(), ["0,2", "1"]);
}

#[test]
fn a_multipath_namespace_belongs_to_the_drive_and_not_to_a_virtual_function() {
    let tree = Tree::new();
    one_cpu(&tree);
    pci_function(&tree, DRIVE, "0x010802\n", "0");
    pci_function(&tree, VIRTUAL, "0x010802\n", "0");
    tree.files(DRIVE, &[("sriov_totalvfs", "4\n"), ("sriov_numvfs", "1\n")]);
    tree.link(&format!("{DRIVE}/virtfn0"), "../0000:21:00.1").link(&format!("{VIRTUAL}/physfn"), "../0000:21:00.0");
    tree.link(&format!("{DRIVE}/driver"), "../../../../bus/pci/drivers/nvme");
    tree.link(&format!("{DRIVE}/iommu_group"), "../../../../kernel/iommu_groups/17");
    let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
    let up = "../../../..";
    // The virtual function came first and is controller 0.
    for (controller, path) in [(0, VIRTUAL), (1, DRIVE)] {
        let place = format!("{path}/nvme/nvme{controller}");
        let hidden = format!("{place}/nvme0c{controller}n1");
        tree.files(&hidden, &[("hidden", "1\n"), ("size", "2048\n"), ("queue/scheduler", "none [mq-deadline]\n")]);
        tree.link(
            &format!("/sys/class/block/nvme0c{controller}n1"),
            format!("../..{}", hidden.strip_prefix("/sys").unwrap()),
        );
        tree.link(&format!("{subsystem}/nvme{controller}"), format!("{up}{}", place.strip_prefix("/sys").unwrap()));
    }
    let namespace = format!("{subsystem}/nvme0n1");
    tree.files(&namespace, &[("hidden", "0\n"), ("size", "2048\n"), ("dev", "259:0\n")]);
    tree.files(&format!("{namespace}/nvme0n1p1"), &[("partition", "1\n"), ("size", "1024\n")]);
    for name in ["nvme0n1", "nvme0n1/nvme0n1p1"] {
        let short = name.rsplit('/').next().unwrap();
        let target = format!("../../devices/virtual/nvme-subsystem/nvme-subsys0/{name}");
        tree.link(&format!("/sys/class/block/{short}"), target);
    }
    tree.directory(&format!("{namespace}/holders/dm-0"));

    let host = Host::read(&tree.fs());
    assert_eq!(host.unreadable, []);
    let names: Vec<&str> = host.block_devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["nvme0n1", "nvme0n1p1"], "hidden paths are no devices");
    for device in &host.block_devices {
        assert_eq!(device.pci.map(|pci| pci.to_string()).as_deref(), Some("0000:21:00.0"), "{}", device.name);
        assert_eq!((device.node, device.paths.len()), (Some(0), 2));
        let served = (device.served_by.as_deref(), device.scheduler.as_deref());
        assert_eq!(served, (Some("nvme0c0n1"), Some("mq-deadline")), "a namespace of several paths has no scheduler");
    }
    assert_eq!(host.block_devices[0].holders, ["dm-0"]);
    let drive = &host.pci_devices[0];
    assert_eq!((drive.driver.as_deref(), drive.iommu_group), (Some("nvme"), Some(17)));
    let state = drive.sriov.as_ref().unwrap();
    assert_eq!((state.total_vfs, state.vfs, state.functions.as_slice()), (4, 1, &[host.pci_devices[1].address][..]));
    assert_eq!(host.pci_devices[1].physical_function, Some(drive.address));
}

#[test]
fn interfaces_know_their_function_driver_and_bridge() {
    let tree = Tree::new();
    one_cpu(&tree);
    pci_function(&tree, DRIVE, "0x020000\n", "-1");
    let place = format!("{DRIVE}/net/eth0");
    tree.file(&format!("{place}/operstate"), "up\n");
    for queue in ["rx-0", "rx-1", "tx-0"] {
        tree.directory(&format!("{place}/queues/{queue}"));
    }
    tree.link(&format!("{DRIVE}/driver"), "../../../../bus/pci/drivers/igb");
    tree.link(&format!("{place}/device"), "../..").link(&format!("{place}/master"), "../../../../../virtual/net/br0");
    tree.link("/sys/class/net/eth0", "../../devices/pci0000:20/0000:20:00.0/0000:21:00.0/net/eth0");
    tree.file("/sys/devices/virtual/net/br0/operstate", "down\n");
    tree.link("/sys/class/net/br0", "../../devices/virtual/net/br0");
    tree.file("/sys/class/net/bonding_masters", "\n");
    let host = Host::read(&tree.fs());
    assert_eq!(host.network_interfaces.len(), 2);
    let [bridge, card] = &host.network_interfaces[..] else { unreachable!() };
    assert_eq!((bridge.name.as_str(), bridge.pci, bridge.driver.as_deref()), ("br0", None, None));
    assert_eq!((card.driver.as_deref(), card.master.as_deref()), (Some("igb"), Some("br0")));
    assert_eq!((card.receive_queues, card.transmit_queues, card.node), (Some(2), Some(1), None));
    assert_eq!(host.unreadable.len(), 0, "{:?}", host.unreadable);
}
