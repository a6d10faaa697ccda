//! Hosts nobody owns, with guests on them.
#![allow(dead_code, reason = "each user takes what it needs")]

use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_host::{GuestProcess, Host, Residency, Thread, ThreadRole};
use nearmetal_units::{Bytes, PageSize};

fn guest(name: &str, node: u32, gib: u64, threads: &[(ThreadRole, &str)]) -> GuestProcess {
    let threads = threads.iter().zip(100..).map(|((role, cpus), id)| Thread {
        id,
        name: String::new(),
        role: role.clone(),
        affinity: Some(cpus.parse().unwrap_or_default()),
        scheduling: None,
    });
    let length = Bytes::from_mib(gib * 1024);
    GuestProcess {
        pid: 100,
        start_time: None,
        name: Some(name.to_owned()),
        uuid: None,
        memory: Some(length),
        threads: threads.collect(),
        residency: vec![Residency {
            start: 0,
            page_size: PageSize::HUGE_2M,
            length,
            guest_memory: true,
            pages: vec![(node, gib * 512)],
            policy: format!("bind:{node}"),
            file: None,
        }],
        ..GuestProcess::default()
    }
}

/// Two packages of two nodes, two L3 domains each, SMT; two guests bound and one that floats.
pub(crate) fn four_nodes() -> Host {
    let (v, e, i, h) = (ThreadRole::Vcpu(0), ThreadRole::Emulator, ThreadRole::Iothread(1), ThreadRole::Vhost);
    let web = [(v.clone(), "1-3,33-35"), (e.clone(), "0"), (i, "32"), (h, "4")];
    Synthetic::new()
        .packages(2)
        .nodes_per_package(2)
        .caches_per_node(2)
        .cores_per_node(8)
        .threads(2)
        .numbering(Numbering::Split)
        .memory_per_node(Bytes::from_mib(64 << 10))
        .pool(PageSize::HUGE_2M, 16_384)
        .nvme(0)
        .nvme_with_sriov(2, 8)
        .network(1, 63, 4)
        .network(3, 0, 0)
        .guest(guest("web1", 0, 16, &web))
        .guest(guest("database", 2, 24, &[(v.clone(), "16-19,48-51"), (e.clone(), "20")]))
        .guest(guest("old & <floating>", 1, 8, &[(v, "0-63"), (e, "0-63")]))
        .build()
}

/// Eight packages of eight nodes of 32 PUs.
pub(crate) fn sixty_four_nodes() -> Host {
    let mut host = Synthetic::new()
        .packages(8)
        .nodes_per_package(8)
        .cores_per_node(16)
        .threads(2)
        .memory_per_node(Bytes::from_mib(256 << 10))
        .guest(guest("big", 9, 200, &[(ThreadRole::Vcpu(0), "288-319"), (ThreadRole::Emulator, "320-321")]));
    for node in [0, 8, 17, 33] {
        host = host.nvme(node).network(node, 0, 0);
    }
    host.build()
}
