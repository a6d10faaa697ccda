//! Every kept machine reads as it is.
#![allow(clippy::disallowed_methods, reason = "the test looks at the folder of fixtures itself")]
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be read is a failed test")]

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::Tree;
use nearmetal_host::{CacheKind, CpuGroup, Host, invariants, text};
use nearmetal_units::{Bytes, PageSize};

fn read(name: &str) -> Host {
    Host::read(&Tree::of_fixture(name).fs())
}

/// Complaints that belong to a machine: files its capture left out.
fn known_complaints(name: &str) -> &'static [&'static str] {
    match name {
        "2p-8n-4c-4t-gpu-nodes" => &["/vendor", "/device"],
        _ => &[],
    }
}

/// Contradictions that a machine is kept for.
fn known_contradictions(name: &str) -> &'static [&'static str] {
    match name {
        "1p-1n-2c-1t-memory-beyond-node" => &[
            "memory: the nodes have 10 GiB together, and the machine 23.5 GiB (/proc/meminfo): 13.5 GiB belong to no \
             node, and plans use what the nodes have",
        ],
        _ => &[],
    }
}

#[test]
fn every_fixture_says_why_it_is_kept_and_reads_as_hwloc_expects() {
    let mut machines = 0;
    for entry in fs::read_dir(common::fixtures()).unwrap() {
        let directory = entry.unwrap().path();
        if !directory.is_dir() {
            continue;
        }
        machines += 1;
        let meta = fs::read_to_string(directory.join("meta.toml")).unwrap();
        assert!(meta.starts_with("why = \""), "{}: meta.toml begins with why", directory.display());
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        let host = read(&name);
        let complaints = host.unreadable.iter().filter(|damage| {
            let known = known_complaints(&name).iter().any(|end| damage.path.ends_with(end));
            !(known && damage.reason == "missing")
        });
        assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&nearmetal_host::Unreadable>::new(), "{name}");
        let contradictions: Vec<String> = invariants::check(&host).iter().map(ToString::to_string).collect();
        assert_eq!(contradictions, known_contradictions(&name), "{name}");
        assert_eq!(host.denied, [""; 0]);
        let expected = meta.lines().find_map(|line| line.strip_prefix("reads_as = \"")?.strip_suffix('"'));
        assert_eq!(Some(shape(&host).as_str()), expected, "{name}");
        assert!(!text::render(&host).is_empty());
    }
    assert!(machines > 10);
}

/// A machine in one line, in the words of hwloc's own expected outputs.
fn shape(host: &Host) -> String {
    let summary = host.summary();
    let mut caches: BTreeMap<String, usize> = BTreeMap::new();
    for cache in &host.caches {
        let kind = match cache.kind {
            Some(CacheKind::Data) => "d",
            Some(CacheKind::Instruction) => "i",
            Some(CacheKind::Unified) => "",
            None => "?",
        };
        let size = cache.size.map_or_else(|| "?".to_owned(), |size| size.to_string());
        *caches.entry(format!("L{}{kind} {size}", cache.level)).or_default() += 1;
    }
    let mut caches: Vec<String> = caches.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if caches.is_empty() {
        caches.push("no caches".to_owned());
    }
    format!(
        "{} packages, {} nodes, {} cores, {} PUs, {} functions; {}",
        summary.packages.unwrap(),
        summary.numa_nodes,
        summary.cores,
        summary.pus,
        summary.pci_devices,
        caches.join(", ")
    )
}

#[test]
fn modules_of_two_cores_are_handed_out_whole_and_counted_as_two() {
    let host = read("4p-8n-4m-2c-modules");
    // Siblings by the kernel's word share front end and floating point: one entry, which a planner hands out whole.
    assert_eq!((host.cores.len(), host.summary().cores), (32, 64));
    let module = host.cores.iter().find(|core| core.cpus.contains(2)).unwrap();
    assert_eq!((module.cpus.to_string().as_str(), module.numbers.as_slice()), ("2-3", &[2, 3][..]));
    // The list of PUs that share the L2 was wrong in this capture; the mask beside it is right.
    let second = host.caches.iter().find(|cache| cache.level == 2 && cache.cpus.contains(3)).unwrap();
    assert_eq!(second.cpus, module.cpus);
    // One node has half the memory of the others.
    let memory: Vec<u64> = host.nodes.iter().map(|node| node.memory_total.unwrap().get() >> 30).collect();
    assert_eq!(memory, [15, 16, 16, 16, 16, 8, 16, 15]);
    assert_eq!((host.nodes[0].distance(3), host.nodes[2].distance(7)), (Some(22), Some(16)));
}

#[test]
fn packages_without_numbers_are_counted_by_their_sets() {
    let host = read("64p-8n-8c-4t-sparse");
    assert!(host.processors.iter().all(|processor| processor.package.is_none()));
    assert_eq!((host.packages.len(), host.packages[1].cpus.to_string().as_str()), (64, "4-7"));
    assert_eq!(host.packages[1].number, None);
    // Gaps in node numbers: a distance belongs to the node that is present, in order.
    assert_eq!(host.node_set().to_string(), "0-1,4-5,8-9,12-13");
    let node = host.node(12).unwrap();
    assert_eq!((node.distance(13), node.distance(12), node.distance(1)), (Some(20), Some(10), Some(40)));
    assert_eq!((node.distance(2), node.pools.len()), (None, 0), "no such node, and no pools in this capture");
    assert_eq!(host.node(13).unwrap().memory_total, Some(Bytes::new(58_250_493_952)));

    let mainframe = read("8p-1n-20c-1t-books-drawers");
    let sets = |groups: &[CpuGroup]| groups.iter().map(|group| group.cpus.to_string()).collect::<Vec<_>>().join(" ");
    assert_eq!(sets(&mainframe.packages), "0-2 3-6 7-9 10-12 13-14 15 16 17-19");
    assert_eq!(sets(&mainframe.books), "0-2,10-12 3-9 13-15 16-19");
    assert_eq!(sets(&mainframe.drawers), "0-12 13-19");
}

#[test]
fn several_packages_may_be_in_one_node() {
    let host = read("16p-4n-24c-1t-packages-in-nodes");
    assert_eq!((host.nodes[1].cpus.to_string().as_str(), host.nodes[1].pools.len()), ("24-47", 0));
    let inside = host.packages.iter().filter(|package| package.cpus.is_subset(&host.nodes[1].cpus));
    assert_eq!(inside.map(|package| package.number.unwrap()).collect::<Vec<_>>(), [4, 5, 6, 7]);
    assert_eq!(host.nodes[3].distance(0), Some(26));
}

#[test]
fn clusters_of_cores_lie_between_core_and_node() {
    let host = read("2p-4n-32c-1t-clusters");
    assert_eq!((host.clusters.len(), host.clusters[1].cpus.to_string().as_str()), (32, "4-7"));
    assert_eq!(host.packages.iter().map(|package| package.number.unwrap()).collect::<Vec<_>>(), [36, 8442]);
    let sizes: Vec<String> = host.nodes[0].pools.iter().map(|pool| pool.size.to_string()).collect();
    assert_eq!(sizes, ["64 KiB", "2 MiB", "32 MiB", "1 GiB"]);
    assert_eq!(host.nodes[0].distances, [(0, 10), (1, 16), (2, 32), (3, 33)]);
}

#[test]
fn processors_dealt_over_the_nodes_stay_with_them() {
    let host = read("2p-4n-10c-2t-memory-side-cache");
    assert!(host.nodes[0].cpus.iter().all(|cpu| cpu % 4 == 0) && host.nodes[0].cpus.len() == 20);
    assert_eq!(host.processor(0).unwrap().siblings.as_ref().unwrap().to_string(), "0,40");
    assert_eq!(host.nodes[1].distances, [(0, 21), (1, 10), (2, 21), (3, 11)]);
    assert_eq!(host.nodes[0].memory_total, Some(Bytes::new(397_816_131_584)));
}

#[test]
fn functions_are_on_the_node_the_kernel_says_or_on_none() {
    let host = read("2p-2n-8c-1t-137-functions");
    let on = |host: &Host, node| host.pci_devices.iter().filter(|device| device.node == node).count();
    assert_eq!((on(&host, Some(0)), on(&host, Some(1)), on(&host, None)), (28, 16, 93));
    assert_eq!(host.summary().pci_bridges, 9);

    let engines = read("2p-2n-8c-2t-vector-engines");
    let kind = |class: u32| engines.pci_devices.iter().filter(move |device| device.class.unwrap() >> 8 == class);
    assert!(kind(0x0b40).all(|device| device.node == Some(0)) && kind(0x0207).all(|device| device.node == Some(0)));
    assert_eq!((kind(0x0b40).count(), kind(0x0207).count()), (8, 2));
    let state = kind(0x0200).next().unwrap().sriov.as_ref().unwrap();
    assert_eq!((state.total_vfs, state.vfs), (64, 0));
    for node in &engines.nodes {
        assert_eq!(node.pool(PageSize::HUGE_2M).map(|pool| (pool.total, pool.free)), Some((2048, 2048)));
    }

    // No numa_node in this capture: the local PUs say it, of which some were removed.
    let gpus = read("2p-8n-4c-4t-gpu-nodes");
    assert_eq!((on(&gpus, Some(0)), on(&gpus, Some(8)), on(&gpus, None)), (3, 3, 0));
    assert_eq!(gpus.node_set().to_string(), "0,8,250-255");
    let memory = gpus.node(250).unwrap();
    assert_eq!((memory.cpus.len(), memory.memory_total), (0, Some(Bytes::from_mib(15 << 10))));
    assert_eq!((memory.distance(250), memory.distance(0)), (Some(10), Some(80)));
}

#[test]
fn offline_processors_are_listed_and_on_no_core() {
    let host = read("4p-1n-2c-2t-offline");
    let offline: Vec<u32> = host.processors.iter().filter(|cpu| !cpu.online).map(|cpu| cpu.index).collect();
    assert_eq!((host.processors.len(), offline.len(), host.online().len()), (16, 4, 12));
    assert!(host.cores.iter().all(|core| offline.iter().all(|cpu| !core.cpus.contains(*cpu))));
    assert!(host.processors.iter().filter(|cpu| !cpu.online).all(|cpu| cpu.siblings.is_none()));
}

#[test]
fn kinds_of_cores_are_told_apart_by_what_the_kernel_gives() {
    let kinds = |name: &str| {
        let kinds = read(name).core_kinds;
        kinds.iter().map(|kind| format!("{} on {}", kind.name, kind.cpus)).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        kinds("1p-1n-6c-2t-8c-1t-hybrid"),
        "base frequency in kHz 1900000 on 0-11; base frequency in kHz 1400000 on 12-19"
    );
    assert_eq!(
        kinds("1p-1n-20c-1t-two-kinds"),
        "midr 0x00000000410fd871 on 0-4,10-14; midr 0x00000000410fd851 on 5-9,15-19"
    );
    assert_eq!(kinds("2p-4n-32c-1t-clusters"), "");
}

#[test]
fn memory_tells_its_caches_and_its_initiators() {
    let optane = read("2p-4n-10c-2t-memory-side-cache");
    let cache = &optane.nodes[0].side_caches[0];
    assert_eq!((cache.level, cache.size, cache.line), (1, Some(Bytes::from_mib(96 << 10)), Some(Bytes::new(64))));
    // The firmware gave zeros: unknown.
    assert!(optane.nodes.iter().all(|node| node.access.iter().all(|access| access.read_latency.is_none())));
    // Node 7 is persistent memory: a device on node 4 is nearest to it, of processors those of nodes 0 and 2.
    let host = read("2p-11n-2c-1t-initiators");
    let access = &host.node(7).unwrap().access;
    let figures: Vec<_> = access
        .iter()
        .map(|access| (access.class, access.initiators.to_string(), access.read_latency, access.read_bandwidth))
        .collect();
    assert_eq!(figures[0], (0, "4".to_owned(), Some(8), Some(8192)));
    assert_eq!(figures[1], (1, "0,2".to_owned(), Some(77), Some(78_644)));
}

#[test]
fn padding_with_nul_changes_nothing() {
    let tree = Tree::of_fixture("2p-2n-8c-1t-nvme-dax-mic");
    let plain = Host::read(&tree.fs());
    for path in tree.all_files() {
        let mut bytes = tree.bytes(&path);
        bytes.extend([0; 4096]);
        tree.file(&path, bytes);
    }
    assert_eq!(Host::read(&tree.fs()), plain);
}

#[test]
fn the_dell_with_a_coprocessor() {
    let host = read("2p-2n-8c-1t-nvme-dax-mic");
    let summary = host.summary();
    assert_eq!(
        (summary.packages, summary.numa_nodes, summary.cores, summary.pus, summary.pci_devices),
        (Some(2), 2, 16, 16, 8)
    );
    let node = host.node(0).unwrap();
    assert_eq!(node.memory_total, Some(Bytes::new(17_149_054_976)));
    assert_eq!((node.distance(0), node.distance(1)), (Some(10), Some(21)));
    assert_eq!(node.cpus.to_string(), "0-7");
    assert_eq!(host.processor(9).unwrap().last_level_cache.as_ref().unwrap().to_string(), "8-15");

    // The kernel says -1, and -1 it stays: the local PUs beside it were edited by hand.
    let drive = host.block_device("nvme0n1").unwrap();
    assert_eq!(drive.pci.unwrap().to_string(), "0000:00:02.0");
    assert_eq!((drive.node, drive.logical_block), (None, Some(Bytes::new(512))));
    assert_eq!(drive.size, Some(Bytes::new(781_422_768 * 512)));
    let part = host.block_device("nvme0n1p1").unwrap();
    assert_eq!(part.partition_of.as_deref(), Some("nvme0n1"));
    assert_eq!((part.pci, part.queues), (drive.pci, drive.queues));
    let disk = host.block_device("sda").unwrap();
    assert_eq!((disk.pci.unwrap().to_string().as_str(), disk.node), ("0000:00:1f.2", Some(0)));
    assert_eq!(host.block_device("pmem1").unwrap().pci, None);

    let coprocessor = host.pci_devices.last().unwrap();
    assert_eq!((coprocessor.class, coprocessor.node), (Some(0x0b_4000), Some(1)));
    assert!(text::render(&host).contains("coprocessor"));
}
