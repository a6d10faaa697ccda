//! Every kept machine reads as it is.
#![allow(clippy::disallowed_methods, reason = "the test looks at the folder of fixtures itself")]

mod common;

use std::fs;

use nearmetal_host::{Host, HostFs, invariants, text};
use nearmetal_units::Bytes;

#[test]
fn every_fixture_says_why_it_is_kept_and_reads_without_a_complaint() {
    let mut machines = 0;
    for entry in fs::read_dir(common::fixtures()).unwrap() {
        let directory = entry.unwrap().path();
        if !directory.is_dir() {
            continue;
        }
        machines += 1;
        let meta = fs::read_to_string(directory.join("meta.toml")).unwrap();
        assert!(meta.starts_with("why = \""), "{}: meta.toml begins with why", directory.display());
        let host = Host::read(&HostFs::at(&directory).unwrap());
        assert_eq!(host.unreadable, [], "{}", directory.display());
        assert_eq!(invariants::check(&host), [], "{}", directory.display());
        assert_eq!(host.denied, [""; 0]);
    }
    assert!(machines > 0);
}

#[test]
fn the_dell_with_a_coprocessor() {
    let host = Host::read(&HostFs::at(common::fixtures().join("2p-2n-8c-1t-nvme-dax-mic")).unwrap());
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
