//! SAMPLE DATA for tests and screenshots: every figure here is invented, and every report made of it says so.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // shared by tests and the example, each using a part

mod host;
mod measured;
pub mod nodes;
mod story;
pub mod tiles;

use nearmetal_report::view::{Environment, GuestCard, JobReport, QuickMode, REPORT_SCHEMA};
use nearmetal_report::{papers, view};
use nearmetal_units::Bytes;

pub use host::{quad, sixteen_nodes};

/// A quick job on a machine of four nodes.
pub fn sample() -> JobReport {
    let mut report = JobReport {
        schema: REPORT_SCHEMA.to_owned(),
        title: "web1 on quad".to_owned(),
        created: "2026-11-20T14:32:08+01:00".to_owned(),
        nearmetal_version: "0.1.0".to_owned(),
        environment: Environment::Lab {
            machine: "quad".to_owned(),
            note: "The machine and its clock are emulated. Ratios between arms tell which path is shorter; no figure \
                   here says how fast real hardware is."
                .to_owned(),
        },
        sample_data: true,
        quick: Some(QuickMode {
            shortened: [
                "guests stay up between pairs",
                "5 s samples",
                "six pairs and two A/A pairs",
                "sizes other than 4 KiB once",
            ]
            .map(str::to_owned)
            .to_vec(),
        }),
        host: Some(quad(0)),
        host_after: Some(quad(512)),
        guest: GuestCard {
            name: "web1".to_owned(),
            uuid: Some("6a2f3f0e-91d7-4f0a-8b0e-3f1f6d1f2a10".to_owned()),
            vcpus: Some(1),
            memory: Some(Bytes::from_mib(1024)),
            class: Some("throughput".to_owned()),
            disks: vec![view::DiskCard {
                target: "vda".to_owned(),
                source: Some("/dev/nvme0n1".to_owned()),
                size: Some(Bytes::from_mib(8192)),
                as_found: Some("no driver options: QEMU takes writeback and its thread pool".to_owned()),
                planned: Some("cache=none io=io_uring iothread=1 queues=1".to_owned()),
            }],
        },
        slice_before: story::slice_before(),
        slice_after: story::slice_after(),
        plan: Some(story::plan()),
        diff: story::diff(),
        verification: story::verification(),
        guest_view: story::guest_view(),
        metrics: measured::metrics(),
        headline_metric: Some("fio-randrw-4k-iops".to_owned()),
        arms: measured::arms(),
        incomplete: vec![],
        comparisons: measured::comparisons(),
        race: None,
        together: None,
        by_nodes: None,
        tiles: None,
        tenants: vec![],
        samples: measured::samples(),
        noise_floors: measured::noise_floors(),
        costs: measured::costs(),
        lifts: measured::lifts(),
        memory: Some(measured::memory()),
        papers: vec![],
        provenance: story::provenance(),
        texts: story::texts(),
        stages: story::stages(),
        rolled_back: Some(story::rolled_back()),
        reproduce: ["git clone https://example.invalid/nearmetal && cd nearmetal", "./dev demo"]
            .map(str::to_owned)
            .to_vec(),
        caveats: story::caveats(),
    };
    report.papers = papers::beside(&report);
    report
}

/// What is left of the sample where there is no plan and no host.
pub fn alone() -> JobReport {
    JobReport {
        title: "web1 on a drive".to_owned(),
        sample_data: false,
        quick: None,
        host: None,
        host_after: None,
        guest: GuestCard { name: "web1".to_owned(), ..GuestCard::default() },
        plan: None,
        diff: vec![],
        verification: vec![],
        guest_view: vec![],
        metrics: vec![],
        headline_metric: None,
        arms: vec![],
        comparisons: vec![],
        samples: vec![],
        noise_floors: vec![],
        costs: vec![],
        lifts: vec![],
        memory: None,
        papers: vec![],
        provenance: vec![],
        texts: vec![],
        stages: vec![],
        rolled_back: None,
        reproduce: vec![],
        caveats: vec!["the drive was empty before".to_owned()],
        ..sample()
    }
}

/// The same guest on a machine of two sockets with eight nodes each.
pub fn large_sample() -> JobReport {
    let mut report = sample();
    report.title = "web1 on sixteen nodes".to_owned();
    report.host = Some(sixteen_nodes());
    report.host_after = None;
    report.slice_after.threads = story::wide_threads();
    report.slice_after.nodes = "9".parse().unwrap();
    report.slice_after.pages.as_mut().unwrap()[0].node = 9;
    report.slice_after.devices[0].node = Some(9);
    report.slice_before.devices[0].node = Some(9);
    report
}

/// One node of two PUs, for a picture small enough to read as text.
pub fn small_sample() -> JobReport {
    let mut report = sample();
    report.host_after = None;
    let host = report.host.as_mut().unwrap();
    host.nodes.truncate(1);
    host.processors.truncate(2);
    host.pci_devices.clear();
    host.block_devices.clear();
    host.network_interfaces.clear();
    report
}
