//! Invented machines.

use nearmetal_host::{
    BlockDevice, Core, Host, HugepagePool, NetworkInterface, NumaNode, PciDevice, Processor, SriovState, System,
};
use nearmetal_units::{Bytes, CpuSet, PageSize};

/// Four sockets of two cores; a drive on node 2, a network card on node 1. `huge` pages of 2 MiB on node 2, in use.
pub fn quad(huge: u64) -> Host {
    let mut host = machine(4, 4, 2, 1, Bytes::from_mib(1536));
    host.nodes[2].pools[0].total = huge;
    if huge > 0 {
        host.nodes[2].memory_free = Some(Bytes::from_mib(350));
    }
    host.pci_devices = vec![
        pci("0000:11:00.0", 0x02_0000, Some(1), "igb", 7),
        pci("0000:21:00.0", 0x01_0802, Some(2), "nvme", 4),
        pci("0000:00:04.0", 0x01_0000, None, "virtio-pci", 0),
    ];
    host.block_devices = vec![drive("nvme0n1", "0000:21:00.0", Some(2)), drive("vda", "0000:00:04.0", None)];
    host.network_interfaces = vec![NetworkInterface {
        name: "enp17s0".to_owned(),
        pci: Some("0000:11:00.0".parse().unwrap()),
        node: Some(1),
        driver: Some("igb".to_owned()),
        receive_queues: Some(4),
        transmit_queues: Some(4),
        state: Some("up".to_owned()),
        ..NetworkInterface::default()
    }];
    host
}

/// Two sockets with eight nodes each, 8 cores of 2 PUs a node.
pub fn sixteen_nodes() -> Host {
    let mut host = machine(2, 16, 8, 2, Bytes::from_mib(32768));
    for (node, address) in [(3, "0000:41:00.0"), (9, "0000:c1:00.0"), (12, "0000:e1:00.0")] {
        host.pci_devices.push(pci(address, 0x01_0802, Some(node), "nvme", 0));
        let name = if node == 9 { "nvme0n1".to_owned() } else { format!("nvme{node}n1") };
        host.block_devices.push(drive(&name, address, Some(node)));
    }
    host
}

fn machine(packages: u32, nodes: u32, cores: u32, threads: u32, memory: Bytes) -> Host {
    let (mut processors, mut all_cores, mut all_nodes) = (vec![], vec![], vec![]);
    let per_thread = nodes * cores;
    for node in 0..nodes {
        let package = node / (nodes / packages);
        let mut cpus = CpuSet::new();
        for core in 0..cores {
            // Siblings are far apart in number, as on most x86 machines.
            let siblings: CpuSet = (0..threads).map(|thread| thread * per_thread + node * cores + core).collect();
            cpus = cpus.union(&siblings);
            for index in siblings.iter() {
                processors.push(Processor {
                    index,
                    online: true,
                    package: Some(package),
                    core: Some(core),
                    siblings: Some(siblings.clone()),
                    node: Some(node),
                    ..Processor::default()
                });
            }
            all_cores.push(Core {
                package: Some(package),
                core: Some(core),
                cpus: siblings,
                node: Some(node),
                ..Core::default()
            });
        }
        all_nodes.push(NumaNode {
            index: node,
            cpus,
            memory_total: Some(memory),
            memory_free: Some(Bytes::new(memory.get() / 10 * 7)),
            distances: (0..nodes).map(|other| (other, if other == node { 10 } else { 20 })).collect(),
            pools: vec![HugepagePool { size: PageSize::HUGE_2M, total: 0, free: 0, surplus: 0 }],
            ..NumaNode::default()
        });
    }
    processors.sort_by_key(|processor| processor.index);
    Host {
        source: "sample".to_owned(),
        system: System { hostname: Some("sample".to_owned()), ..System::default() },
        processors,
        cores: all_cores,
        nodes: all_nodes,
        ..Host::default()
    }
}

fn pci(address: &str, class: u32, node: Option<u32>, driver: &str, vfs: u32) -> PciDevice {
    PciDevice {
        address: address.parse().unwrap(),
        class: Some(class),
        node,
        driver: Some(driver.to_owned()),
        sriov: (vfs > 0).then(|| SriovState { total_vfs: vfs, vfs, functions: vec![] }),
        ..PciDevice::default()
    }
}

fn drive(name: &str, address: &str, node: Option<u32>) -> BlockDevice {
    BlockDevice {
        name: name.to_owned(),
        size: Some(Bytes::from_mib(8192)),
        rotational: Some(false),
        scheduler: Some("none".to_owned()),
        queues: Some(4),
        pci: Some(address.parse().unwrap()),
        node,
        ..BlockDevice::default()
    }
}
