//! Requests and running guests for the tests of the planner.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use nearmetal_host::{GuestProcess, Host, Residency, Thread, ThreadRole};
use nearmetal_place::{DiskRequest, GuestRequest, NetworkRequest, Occupied, Placement, Planned, Policy, WorkloadClass};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};

pub(crate) fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

pub(crate) fn nodes(text: &str) -> NodeSet {
    text.parse().unwrap()
}

/// A guest without devices.
pub(crate) fn guest(name: &str, vcpus: u32, mib: u64) -> GuestRequest {
    GuestRequest {
        name: name.to_owned(),
        uuid: format!("uuid-of-{name}"),
        vcpus,
        memory: Bytes::from_mib(mib),
        class: WorkloadClass::General,
        disks: Vec::new(),
        networks: Vec::new(),
        passthrough: Vec::new(),
        shows: Default::default(),
    }
}

/// A whole block device as virtio disk.
pub(crate) fn block_disk(target: &str, device: &str) -> DiskRequest {
    DiskRequest {
        target: target.to_owned(),
        source: Some(format!("/dev/{device}")),
        block_device: Some(device.to_owned()),
        is_block: true,
        is_virtio_blk: true,
        is_read_only: false,
    }
}

/// A guest with a whole block device.
pub(crate) fn guest_on(name: &str, vcpus: u32, mib: u64, device: &str) -> GuestRequest {
    GuestRequest { disks: vec![block_disk("vda", device)], ..guest(name, vcpus, mib) }
}

/// A network interface behind a host interface.
pub(crate) fn network(interface: &str) -> NetworkRequest {
    NetworkRequest { mac: "52:54:00:00:00:01".to_owned(), host_interface: Some(interface.to_owned()), uses_vhost: true }
}

pub(crate) fn plan(host: &Host, guests: &[GuestRequest]) -> Planned {
    nearmetal_place::plan(host, &Occupied::default(), guests, &Policy::default())
}

/// PUs of a placement's vCPUs, in vCPU order.
pub(crate) fn cpus(placement: &Placement) -> Vec<u32> {
    placement.vcpus.iter().filter_map(|pin| pin.cpus.first()).collect()
}

/// The same as a set.
pub(crate) fn cpu_set(placement: &Placement) -> CpuSet {
    cpus(placement).into_iter().collect()
}

/// PUs of emulator thread and iothreads.
pub(crate) fn helper_set(placement: &Placement) -> CpuSet {
    placement.iothreads.iter().fold(placement.emulator.clone(), |all, set| all.union(set))
}

/// The choice of the first decision on that subject.
pub(crate) fn choice(placement: &Placement, subject: &str) -> String {
    let reason = placement.reasons.iter().find(|reason| reason.subject == subject);
    reason.map(|reason| reason.choice.clone()).unwrap_or_default()
}

/// Why of the first decision on that subject.
pub(crate) fn because(placement: &Placement, subject: &str) -> String {
    let reason = placement.reasons.iter().find(|reason| reason.subject == subject);
    reason.map(|reason| reason.because.clone()).unwrap_or_default()
}

/// A process with these threads and pages.
pub(crate) fn process(
    name: &str,
    threads: Vec<(ThreadRole, CpuSet)>,
    pages: Vec<(u32, PageSize, u64)>,
) -> GuestProcess {
    let thread = |(index, (role, affinity)): (usize, (ThreadRole, CpuSet))| Thread {
        id: 1000 + index as u32,
        name: "thread".to_owned(),
        role,
        affinity: Some(affinity),
        scheduling: None,
    };
    let mapping = |(node, size, pages): (u32, PageSize, u64)| Residency {
        start: 0x7f00_0000_0000,
        page_size: size,
        length: size.bytes().times(pages),
        guest_memory: true,
        pages: vec![(node, pages)],
        policy: format!("bind:{node}"),
        file: None,
    };
    GuestProcess {
        pid: 1000,
        start_time: None,
        memory: None,
        name: Some(name.to_owned()),
        uuid: Some(format!("uuid-of-{name}")),
        threads: threads.into_iter().enumerate().map(thread).collect(),
        residency: pages.into_iter().map(mapping).collect(),
        ..GuestProcess::default()
    }
}

/// The host with a plan carried out: pools resized, guests running where they were placed.
pub(crate) fn applied(host: &Host, planned: &Planned, guests: &[GuestRequest]) -> Host {
    let mut host = host.clone();
    for change in &planned.plan.pools {
        let node = host.nodes.iter_mut().find(|node| node.index == change.node).unwrap();
        let grown = change.size.bytes().times(change.after - change.before);
        node.memory_free = node.memory_free.map(|free| free.less(grown));
        let pool = node.pools.iter_mut().find(|pool| pool.size == change.size).unwrap();
        pool.total += change.after - change.before;
        pool.free += change.after - change.before;
    }
    for placement in &planned.plan.placements {
        let request = guests.iter().find(|guest| guest.name == placement.guest).unwrap();
        let mut left = placement.memory.page_size.map_or(0, |size| request.memory.pages(size));
        let mut held = Vec::new();
        for node in host.nodes.iter_mut().filter(|node| placement.memory.nodes.contains(node.index)) {
            let Some(pool) = node.pools.iter_mut().find(|pool| Some(pool.size) == placement.memory.page_size) else {
                continue;
            };
            let taken = left.min(pool.free);
            pool.free -= taken;
            left -= taken;
            held.push((node.index, pool.size, taken));
        }
        let mut threads: Vec<(ThreadRole, CpuSet)> =
            placement.vcpus.iter().map(|pin| (ThreadRole::Vcpu(pin.vcpu), pin.cpus.clone())).collect();
        threads.push((ThreadRole::Emulator, placement.emulator.clone()));
        threads.extend((1..).zip(&placement.iothreads).map(|(id, set)| (ThreadRole::Iothread(id), set.clone())));
        host.guests.push(process(&placement.guest, threads, held));
    }
    host
}
