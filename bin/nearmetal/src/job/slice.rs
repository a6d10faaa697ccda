//! What the VM occupied: its threads and pages as the kernel had them, never as the plan would like them.

use std::collections::BTreeMap;

use nearmetal_domain::{DiskFacts, DomainFacts};
use nearmetal_host::{GuestProcess, Host, ThreadRole};
use nearmetal_report::view::{NodePages, SliceDevice, SliceRole, SliceThread, SliceView};
use nearmetal_units::{CpuSet, NodeSet, PageSize};

use super::describe;
use super::guest::block_name;

/// The QEMU process of a domain: by UUID, and by name only where the process does not say its UUID.
pub(crate) fn process<'a>(host: &'a Host, name: &str, uuid: &str) -> Option<&'a GuestProcess> {
    let same_uuid = |guest: &&GuestProcess| guest.uuid.as_deref().is_some_and(|other| other.eq_ignore_ascii_case(uuid));
    host.guests
        .iter()
        .find(same_uuid)
        .or_else(|| host.guests.iter().find(|guest| guest.uuid.is_none() && guest.name.as_deref() == Some(name)))
}

/// The slice of a running guest.
pub(crate) fn running(host: &Host, guest: &GuestProcess, facts: &DomainFacts) -> SliceView {
    let memory: Vec<_> = guest.residency.iter().filter(|mapping| mapping.guest_memory).collect();
    let bound: Vec<NodeSet> = memory.iter().filter_map(|mapping| strict_nodes(&mapping.policy)).collect();
    let strict = !memory.is_empty() && bound.len() == memory.len();
    let mut pages: BTreeMap<(u32, PageSize), u64> = BTreeMap::new();
    for mapping in &memory {
        for (node, count) in &mapping.pages {
            let sum = pages.entry((*node, mapping.page_size)).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
    let huge = memory.iter().map(|mapping| mapping.page_size).filter(|size| *size > PageSize::SMALL).max();
    let read = guest.residency_error.is_none() && !memory.is_empty();
    let (written, written_strict) = describe::binding(facts);
    SliceView {
        threads: threads(host, guest),
        // libvirt may bind by the cpuset cgroup alone, which leaves the mappings' policy at `default`.
        nodes: if strict { bound.iter().fold(NodeSet::new(), |all, set| all.union(set)) } else { written },
        strict: strict || written_strict,
        page_size: if read { huge } else { describe::huge_page(facts) },
        pages: read.then(|| pages.into_iter().map(|((node, size), pages)| NodePages { node, size, pages }).collect()),
        devices: devices(host, facts),
    }
}

/// The slice of a guest that did not run: what its definition allows it. No page is anywhere.
pub(crate) fn defined(host: &Host, facts: &DomainFacts) -> SliceView {
    let everywhere = facts.vcpus.cpuset.clone().unwrap_or_else(|| host.online());
    let pin = |role, number, cpus: Option<&CpuSet>| SliceThread {
        role,
        number,
        floating: cpus.unwrap_or(&everywhere) == &host.online(),
        cpus: cpus.unwrap_or(&everywhere).clone(),
    };
    let of = |pins: &[(u32, CpuSet)], number| {
        pins.iter().find(|(pinned, _)| *pinned == number).map(|(_, cpus)| cpus.clone())
    };
    let vcpus = (0..facts.vcpus.current.min(MOST_VCPUS))
        .map(|number| pin(SliceRole::Vcpu, Some(number), of(&facts.vcpu_pins, number).as_ref()));
    let iothreads = facts
        .iothreads
        .ids
        .iter()
        .map(|number| pin(SliceRole::Iothread, Some(*number), of(&facts.iothreads.pins, *number).as_ref()));
    let emulator = pin(SliceRole::Emulator, None, facts.emulator_pin.as_ref());
    let (nodes, strict) = describe::binding(facts);
    SliceView {
        threads: vcpus.chain([emulator]).chain(iothreads).collect(),
        nodes,
        strict,
        page_size: describe::huge_page(facts),
        pages: None,
        devices: devices(host, facts),
    }
}

/// KVM's own limit on x86 is 4096 (KVM_MAX_VCPUS, Linux 6.1); a definition that says more is damaged.
const MOST_VCPUS: u32 = 4096;

/// Threads with a part in the job. Pool workers and other helpers run where the emulator thread does.
fn threads(host: &Host, guest: &GuestProcess) -> Vec<SliceThread> {
    let online = host.online();
    let mut threads: Vec<SliceThread> = guest
        .threads
        .iter()
        .filter_map(|thread| {
            let (role, number) = match thread.role {
                ThreadRole::Vcpu(number) => (SliceRole::Vcpu, Some(number)),
                ThreadRole::Emulator => (SliceRole::Emulator, None),
                ThreadRole::Iothread(number) => (SliceRole::Iothread, Some(number)),
                ThreadRole::Vhost => (SliceRole::Vhost, None),
                ThreadRole::Worker | ThreadRole::Other => return None,
            };
            let cpus = thread.affinity.clone()?;
            Some(SliceThread { role, number, floating: online.is_subset(&cpus), cpus: cpus.intersection(&online) })
        })
        .collect();
    threads.sort_by_key(|thread| (thread.role, thread.number));
    threads
}

/// The nodes of a `bind` policy as numa_maps prints it (`bind:1`, `bind=static:0-1`); other policies are no promise.
fn strict_nodes(policy: &str) -> Option<NodeSet> {
    let (mode, nodes) = policy.split_once(':')?;
    (mode == "bind" || mode.starts_with("bind=")).then(|| nodes.parse().ok()).flatten()
}

/// Disks and functions handed through, where the host knows them.
fn devices(host: &Host, facts: &DomainFacts) -> Vec<SliceDevice> {
    let disk = |disk: &DiskFacts| {
        let source = disk.source.as_deref()?;
        let name = block_name(source).unwrap_or(source);
        let known = host.block_device(name);
        Some(SliceDevice {
            name: name.to_owned(),
            pci: known.and_then(|device| device.pci),
            node: known.and_then(|device| device.node),
            purpose: format!("disk {}", disk.target),
        })
    };
    let handed = facts.hostdevs.iter().map(|address| {
        let known = host.pci_devices.iter().find(|device| device.address == *address);
        SliceDevice {
            name: address.to_string(),
            pci: Some(*address),
            node: known.and_then(|device| device.node),
            purpose: "handed through".to_owned(),
        }
    });
    // An NVMe drive handed through is both a disk and a function: once is enough.
    let disks = facts.disks.iter().filter(|disk| disk.device == "disk" && disk.kind != "nvme").filter_map(disk);
    disks.chain(handed).collect()
}
