//! Domains and guests that exist, as a fleet file says them.

use std::path::PathBuf;

use nearmetal_domain::{DiskFacts, DomainFacts, InterfaceFacts};
use nearmetal_fleet::file::{DiskBus, DiskEntry, DiskSource, FoundDomain, HostReach, NicAttach, NicEntry, NicKind};
use nearmetal_fleet::{GuestNuma, Locality};
use nearmetal_host::{GuestProcess, Host, ThreadRole};
use nearmetal_rules::class_of;
use nearmetal_units::{Bytes, PageSize};

/// A name for the host, that a fleet file takes.
pub(super) fn host_name(host: &Host, reach: &HostReach) -> String {
    let from_reach = match reach {
        HostReach::Ssh { destination, .. } => destination.rsplit('@').next().map(str::to_owned),
        HostReach::Libvirt(uri) => uri
            .split("://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .and_then(|place| place.rsplit('@').next())
            .and_then(|place| place.split(':').next())
            .map(str::to_owned),
        HostReach::Local | HostReach::Capture(_) => None,
    };
    let name = from_reach.filter(|name| !name.is_empty()).or_else(|| host.system.hostname.clone()).unwrap_or_default();
    let plain =
        |character: char| if character.is_alphanumeric() || "-_.:".contains(character) { character } else { '-' };
    let name: String = name.trim().chars().map(plain).take(100).collect();
    if name.is_empty() { "here".to_owned() } else { name }
}

/// A domain by its definition.
pub(super) fn domain(facts: &DomainFacts, host: &Host, runs: bool) -> FoundDomain {
    let (class, class_reason) = class_of(facts);
    let bound = facts.vcpu_pins.iter().filter(|(_, pus)| pus.len() == 1).count() as u32 >= facts.vcpus.maximum.max(1);
    let mut found = FoundDomain {
        name: facts.name.clone(),
        uuid: facts.uuid.clone(),
        vcpus: facts.vcpus.maximum,
        memory: facts.memory,
        page_size: None,
        class,
        class_reason,
        bound,
        numa: if facts.cells.len() > 1 { GuestNuma::Cells(facts.cells.len() as u32) } else { GuestNuma::Hidden },
        runs,
        disks: Vec::new(),
        nics: Vec::new(),
        functions: facts.hostdevs.clone(),
        remarks: Vec::new(),
    };
    if let Some(pages) = &facts.hugepages {
        found.page_size = Some(pages.first().map_or(PageSize::HUGE_2M, |pages| pages.size));
        if pages.is_empty() {
            found.remarks.push("hugepages of the host's default size, taken for 2 MiB".to_owned());
        } else if pages.len() > 1 {
            found.remarks.push("hugepages of several sizes: the first is written here".to_owned());
        }
    }
    if facts.vcpus.current < facts.vcpus.maximum {
        found.remarks.push(format!("it starts with {} of its vCPUs", facts.vcpus.current));
    }
    for disk in facts.disks.iter().filter(|disk| disk.device == "disk") {
        match disk_entry(disk, host) {
            Some(entry) => found.disks.push(entry),
            None => found.remarks.push(disk_remark(disk)),
        }
    }
    for interface in facts.interfaces.iter().filter(|interface| interface.kind != "hostdev") {
        match nic_entry(interface) {
            Some(entry) => found.nics.push(entry),
            None => found.remarks.push(format!(
                "interface {}: {} ({})",
                interface.mac.as_deref().unwrap_or("without MAC address"),
                interface.kind,
                interface.model.as_deref().unwrap_or("model unknown")
            )),
        }
    }
    found
}

/// A guest by its process alone; `None` without what a fleet file needs.
pub(super) fn guest(guest: &GuestProcess) -> Option<FoundDomain> {
    let vcpus: Vec<_> = guest.threads.iter().filter(|thread| matches!(thread.role, ThreadRole::Vcpu(_))).collect();
    let huge = guest.residency.iter().filter(|mapping| mapping.guest_memory).map(|mapping| mapping.page_size).max();
    let bound = vcpus.iter().all(|thread| thread.affinity.as_ref().is_some_and(|pus| pus.len() == 1));
    Some(FoundDomain {
        name: guest.name.clone()?,
        uuid: guest.uuid.clone(),
        vcpus: vcpus.len() as u32,
        memory: guest.memory?,
        page_size: huge.filter(|size| *size > PageSize::SMALL),
        class: nearmetal_place::WorkloadClass::General,
        class_reason: "its definition is not known".to_owned(),
        bound: bound && !vcpus.is_empty(),
        numa: GuestNuma::Hidden,
        runs: true,
        disks: Vec::new(),
        nics: Vec::new(),
        functions: Vec::new(),
        remarks: Vec::new(),
    })
    .filter(|found| found.vcpus > 0 && found.memory > Bytes::ZERO)
}

/// A disk that decides where its VM is best: a block device of the host.
fn disk_entry(disk: &DiskFacts, host: &Host) -> Option<DiskEntry> {
    let bus = match disk.bus.as_deref() {
        Some("virtio") => DiskBus::Virtio,
        Some("scsi") => DiskBus::Scsi,
        _ => return None,
    };
    let path = disk.source.as_ref().filter(|path| disk.kind == "block" && path.starts_with("/dev/"))?;
    let drive = path.strip_prefix("/dev/").filter(|name| host.block_device(name).is_some()).map(str::to_owned);
    let locality = drive.as_ref().map(|_| Locality::Preferred);
    Some(DiskEntry { source: DiskSource::Device(PathBuf::from(path)), bus, read_only: disk.readonly, drive, locality })
}

fn disk_remark(disk: &DiskFacts) -> String {
    format!("disk {}: {} ({})", disk.target, disk.source.as_deref().unwrap_or("empty"), disk.kind)
}

fn nic_entry(interface: &InterfaceFacts) -> Option<NicEntry> {
    if !interface.model.as_deref().is_some_and(|model| model.starts_with("virtio")) {
        return None;
    }
    let source = interface.source.clone()?;
    let served = match interface.driver_name.as_deref() {
        Some("qemu") => NicKind::Virtio,
        _ => NicKind::Vhost,
    };
    let (kind, attach, on) = match interface.kind.as_str() {
        "network" => (served, Some(NicAttach::Network(source)), None),
        "bridge" => (served, Some(NicAttach::Bridge(source)), None),
        "direct" => (NicKind::Macvtap, None, Some(source)),
        _ => return None,
    };
    let locality = on.as_ref().map(|_| Locality::Preferred);
    Some(NicEntry { kind, attach, interface: on, mac: None, vlan: None, locality })
}
