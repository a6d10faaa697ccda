//! Whatever is done to a file of a capture: no panic, no read outside, and no value made up.

mod common;

use common::Tree;
use nearmetal_host::{Document, Host, invariants, text};
use proptest::prelude::*;

const MACHINE: &str = "2p-2n-8c-1t-nvme-dax-mic";

/// Reads and shows, the way the command does.
fn read(tree: &Tree) -> Host {
    let host = Host::read(&tree.fs());
    let _ = (text::render(&host), Document::new(&host).to_json(), invariants::check(&host));
    host
}

fn complains_about(host: &Host, path: &str) -> bool {
    host.unreadable.iter().any(|damage| damage.path == path || same_place(&damage.path, path))
}

/// Whether two paths end alike: devices are read through their class links.
fn same_place(left: &str, right: &str) -> bool {
    let tail = |path: &str| path.rsplitn(3, '/').take(2).map(str::to_owned).collect::<Vec<_>>();
    tail(left) == tail(right)
}

/// Files of which any text is sound: names, and the first block of cpuinfo. The last line of meminfo is not one of ours.
fn may_change_without_a_complaint(path: &str, damage: &str) -> bool {
    const NAMES: [&str; 23] = [
        "/hostname",
        "/osrelease",
        "/version",
        "/actions",
        "/halt_poll_ns",
        "/current_clocksource",
        "/control",
        "/current_driver",
        "/current_governor",
        "/meltdown",
        "/scaling_driver",
        "/scaling_governor",
        "/reset_method",
        "/operstate",
        "/uuid",
        "/name",
        "/level",
        "/cpuset.cpus.partition",
        "/comm",
        "/enabled",
        "/defrag",
        "/scheduler",
        "/iommu_groups/7/type",
    ];
    let name = damage == "words" && NAMES.iter().any(|name| path.ends_with(name));
    let whole = ["/cpuinfo", "/uevent", "/config", "/cmdline", "/comm"];
    // A copy of a link that was down is empty, and so is the list of listeners where nobody listens.
    let none = damage == "emptied" && ["/speed", "/actions"].iter().any(|name| path.ends_with(name));
    name || none
        || whole.iter().any(|name| path.ends_with(name))
        || path.ends_with("/meminfo") && damage.starts_with("cut")
}

/// Damages every file of a tree in turn and reads. Either the file is named, or nothing changes: another says the same.
fn damage_each(tree: &Tree) {
    let sound = read(tree);
    for path in tree.all_files() {
        let original = tree.bytes(&path);
        let damages: [(&str, Vec<u8>); 4] = [
            ("emptied", Vec::new()),
            ("cut by one byte", original[..original.len().saturating_sub(1)].to_vec()),
            ("binary", vec![0xff, 0xfe, 0x00, 0x41, b'\n']),
            ("words", b"no such thing\n".to_vec()),
        ];
        for (damage, bytes) in damages {
            tree.file(&path, bytes);
            let host = read(tree);
            if may_change_without_a_complaint(&path, damage) {
                continue;
            }
            assert!(complains_about(&host, &path) || host == sound, "{path} {damage}: {:?}", host.unreadable);
            // Only what the file says may be lost; nothing else may move.
            assert_eq!(host.processors.len(), sound.processors.len(), "{path} {damage}");
            assert_eq!(host.online(), sound.online(), "{path} {damage}");
            assert_eq!(host.nodes.len(), sound.nodes.len(), "{path} {damage}");
            assert_eq!(host.pci_devices.len(), sound.pci_devices.len(), "{path} {damage}");
            for (cpu, sound) in host.processors.iter().zip(&sound.processors) {
                let cache = &cpu.last_level_cache;
                assert!(cache.is_none() || *cache == sound.last_level_cache, "{path} {damage}");
                assert!(cpu.siblings.is_none() || cpu.siblings == sound.siblings, "{path} {damage}");
            }
        }
        tree.file(&path, original);
    }
    assert_eq!(read(tree), sound);
}

#[test]
fn every_damaged_file_is_named_or_changes_nothing() {
    damage_each(&Tree::of_fixture(MACHINE));
}

#[test]
fn every_kind_of_file_may_be_damaged() {
    let tree = Tree::of_text(include_str!("data/everything.txt"));
    let sound = read(&tree);
    assert_eq!(sound.unreadable, []);
    assert_eq!((sound.core_kinds.len(), sound.interrupts.len(), sound.cpusets.len(), sound.guests.len()), (2, 1, 2, 1));
    assert_eq!((sound.nodes[1].access.len(), sound.nodes[1].side_caches.len(), sound.clusters.len()), (1, 1, 2));
    damage_each(&tree);
}

#[test]
fn a_missing_file_never_becomes_a_zero() {
    let tree = Tree::of_fixture(MACHINE);
    let sound = read(&tree);
    for path in tree.all_files() {
        let original = tree.bytes(&path);
        tree.remove(&path);
        let host = read(&tree);
        for (node, sound) in host.nodes.iter().zip(&sound.nodes) {
            assert!(node.memory_total.is_none() || node.memory_total == sound.memory_total, "{path}");
            assert!(node.pools.iter().all(|pool| sound.pools.contains(pool)), "{path}");
            assert!(node.cpus == sound.cpus || complains_about(&host, &path), "{path}: {:?}", host.unreadable);
        }
        for (disk, sound) in host.block_devices.iter().zip(&sound.block_devices) {
            assert!(disk.size.is_none() || disk.size == sound.size, "{path}");
            assert!(disk.node.is_none() || disk.node == sound.node, "{path}");
        }
        tree.file(&path, original);
    }
}

#[test]
fn a_link_out_of_the_tree_is_named_and_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    #[allow(clippy::disallowed_methods, reason = "the bait lies outside any tree")]
    std::fs::write(&secret, "4096\n").unwrap();
    let tree = Tree::of_fixture(MACHINE);
    let up = format!("../../../../../../../../../..{}", secret.display());
    for path in [
        "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
        "/sys/devices/system/cpu/cpu3/topology/core_id",
        "/sys/devices/pci0000:00/0000:00:02.0/block/nvme0n1/size",
    ] {
        let original = tree.bytes(path);
        for target in [secret.to_string_lossy().into_owned(), up.clone()] {
            tree.link(path, &target);
            let host = read(&tree);
            assert!(complains_about(&host, path), "{path} -> {target}: {:?}", host.unreadable);
        }
        tree.remove(path);
        tree.file(path, original);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn random_bytes_in_random_files_never_panic(
        damages in proptest::collection::vec((any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 0..200)), 1..8)
    ) {
        // One copy of the tree for each thread: a copy a case would take longer than the reading.
        thread_local! { static TREE: Tree = Tree::of_fixture(MACHINE); }
        TREE.with(|tree| {
            let files = tree.all_files();
            let saved: Vec<_> = damages
                .iter()
                .map(|(index, bytes)| {
                    let path = index.get(&files);
                    let original = tree.bytes(path);
                    tree.file(path, bytes);
                    (path, original)
                })
                .collect();
            read(tree);
            // In reverse: the same file may have been chosen twice.
            for (path, original) in saved.into_iter().rev() {
                tree.file(path, original);
            }
        });
    }
}
