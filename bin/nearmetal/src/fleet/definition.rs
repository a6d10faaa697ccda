//! The definition a VM of a fleet starts from: the one its host has, a template, or one that is written from the file.

use std::path::Path;

use anyhow::Context;
use nearmetal_change::{DomainInput, HostIdentity, Starting, shaped_by_class};
use nearmetal_domain::{
    DiskBus, DomainFacts, DomainXml, Firmware, ImageFormat, NetworkBackend, NewDisk, NewDiskSource, NewDomain,
    NewInterface, NewInterfaceSource,
};
use nearmetal_fleet::file::{self, NicAttach, NicEntry, NicKind, VmEntry};
use nearmetal_fleet::{CpuSharing, VmPlacement};
use nearmetal_host::files;
use nearmetal_units::{MacAddress, VlanId};
use sha2::{Digest, Sha256};

use super::hosts::ReadHost;

/// What the host's plan is composed from, and its facts.
///
/// # Errors
/// A definition or template that is damaged, or a definition that cannot be written so; in words.
pub(crate) fn of(
    entry: &VmEntry,
    planned: &VmPlacement,
    host: &ReadHost,
    beside: &Path,
) -> anyhow::Result<(Starting, DomainFacts)> {
    let (vcpus, memory) = (entry.vm.vcpus, entry.vm.memory);
    if let Some(defined) = find(entry, host) {
        let facts = DomainXml::parse(&defined.inactive_xml).context("its definition")?.facts()?;
        return Ok((Starting::Existing(defined.clone(), vcpus, memory), DomainFacts { memory, ..facts }));
    }
    let uuid = entry.uuid.clone().unwrap_or_else(|| uuid(&HostIdentity::of(&host.host), &host.name, &entry.vm.name));
    let Some(path) = &entry.template else {
        let new = new_domain(entry, planned, uuid);
        let facts = new.to_xml()?.facts()?;
        return Ok((Starting::New(Box::new(new)), facts));
    };
    let path = beside.join(path);
    let mut xml =
        DomainXml::parse(&files::read_to_string(&path)?).with_context(|| format!("the template {}", path.display()))?;
    xml.set_name(&entry.vm.name)?;
    xml.set_uuid(&uuid)?;
    xml.set_size(vcpus, memory)?;
    xml.regenerate_mac_addresses(&uuid)?;
    let new = new_domain(entry, planned, uuid);
    xml.add_missing_devices(&new.disks, &new.interfaces)?;
    let facts = xml.facts()?;
    Ok((Starting::Template(xml), facts))
}

/// The domain a VM is on a host.
pub(crate) fn find<'a>(entry: &VmEntry, host: &'a ReadHost) -> Option<&'a DomainInput> {
    host.domains.iter().flatten().find(|domain| is_it(entry, domain))
}

fn is_it(entry: &VmEntry, domain: &DomainInput) -> bool {
    match &entry.uuid {
        Some(uuid) => DomainXml::parse(&domain.inactive_xml)
            .and_then(|xml| xml.facts())
            .is_ok_and(|facts| facts.uuid.is_some_and(|own| own.eq_ignore_ascii_case(uuid))),
        None => domain.name == entry.vm.name,
    }
}

/// A UUID that the same fleet gets again: planning twice makes one definition and not two (RFC 9562, version 8).
fn uuid(host: &HostIdentity, name: &str, vm: &str) -> String {
    let digest = Sha256::digest(format!("{}\n{name}\n{vm}\n", host.fingerprint).as_bytes());
    let mut hex: Vec<char> =
        digest.iter().take(16).flat_map(|byte| format!("{byte:02x}").chars().collect::<Vec<_>>()).collect();
    hex[12] = '8';
    hex[16] = ['8', '9', 'a', 'b'][hex[16].to_digit(16).unwrap_or(0) as usize % 4];
    let text: String = hex.into_iter().collect();
    [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
}

/// A definition with what the file says and no device besides; what follows from the class is the class's.
fn new_domain(entry: &VmEntry, planned: &VmPlacement, uuid: String) -> NewDomain {
    let vm = &entry.vm;
    let new = NewDomain {
        firmware: match entry.firmware {
            Some(file::Firmware::Efi) => Firmware::Efi,
            Some(file::Firmware::Bios) | None => Firmware::Bios,
        },
        disks: entry.disks.iter().map(disk).collect(),
        interfaces: entry.nics.iter().filter_map(|nic| interface(nic, vm.vcpus)).collect(),
        ..NewDomain::new(vm.name.clone(), uuid, vm.vcpus, vm.memory)
    };
    let one_to_one = vm.sharing() == CpuSharing::Dedicated && planned.floating.is_none();
    shaped_by_class(new, vm.class, one_to_one)
}

fn disk(disk: &file::DiskEntry) -> NewDisk {
    let format = |format: &file::DiskFormat| match format {
        file::DiskFormat::Qcow2 => ImageFormat::Qcow2,
        file::DiskFormat::Raw => ImageFormat::Raw,
    };
    let source = match &disk.source {
        file::DiskSource::Device(path) => NewDiskSource::Block(path.display().to_string()),
        file::DiskSource::File { path, format: given } => {
            NewDiskSource::File { path: path.display().to_string(), format: format(given) }
        }
        file::DiskSource::Volume { pool, volume } => {
            // A pool's volumes are raw unless their name says otherwise: the file has no key for it.
            let format = if volume.ends_with(".qcow2") { ImageFormat::Qcow2 } else { ImageFormat::Raw };
            NewDiskSource::Volume { pool: pool.clone(), volume: volume.clone(), format }
        }
    };
    NewDisk {
        source,
        bus: match disk.bus {
            file::DiskBus::Virtio => DiskBus::Virtio,
            file::DiskBus::Scsi => DiskBus::Scsi,
        },
    }
}

/// An interface of virtio, or of a network that deals virtual functions; those that the plan deals come with the placement.
fn interface(nic: &NicEntry, vcpus: u32) -> Option<NewInterface> {
    let mac: Option<MacAddress> = nic.mac.as_deref().and_then(|mac| mac.parse().ok());
    if let Some(network) = nic.function_pool() {
        let vlan = nic.vlan.and_then(|vlan| VlanId::try_from(vlan).ok());
        let source = NewInterfaceSource::FunctionPool(network.to_owned(), vlan);
        return Some(NewInterface { source, mac, backend: None, queues: None });
    }
    let source = match (&nic.kind, &nic.attach, &nic.interface) {
        (NicKind::Vf, ..) => return None,
        (NicKind::Macvtap, _, Some(interface)) => NewInterfaceSource::Macvtap(interface.clone()),
        (_, Some(NicAttach::Network(network)), _) => NewInterfaceSource::Network(network.clone()),
        (_, Some(NicAttach::Bridge(bridge)), _) => NewInterfaceSource::Bridge(bridge.clone()),
        (_, None, _) => return None,
    };
    let backend = match nic.kind {
        NicKind::Virtio => Some(NetworkBackend::Qemu),
        _ => Some(NetworkBackend::Vhost),
    };
    Some(NewInterface { source, mac, backend, queues: Some(vcpus.clamp(1, MOST_QUEUES)) })
}

/// Pairs of queues of an interface at most: more cost interrupts and vhost workers, and few links need them.
const MOST_QUEUES: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_the_same_for_the_same_vm_alone() {
        let host = HostIdentity { hostname: "a".to_owned(), fingerprint: "f".to_owned() };
        let one = uuid(&host, "alpha", "db");
        assert_eq!(one, uuid(&host, "alpha", "db"));
        assert_ne!(one, uuid(&host, "beta", "db"));
        assert_ne!(one, uuid(&host, "alpha", "db2"));
        let parts: Vec<usize> = one.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&one[14..15], "8");
    }
}
