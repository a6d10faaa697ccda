//! A definition edited by a placement.

use nearmetal_domain::{
    Cell, CellFacts, DefinitionEdit, DiskCache, DiskIo, DomainError, DomainFacts, DomainXml, DriverOptions, Function,
    InterfaceOptions, NetworkFunction,
};
use nearmetal_place::{CacheMode, DevicePlacement, DiskEngine, FunctionKind, GuestCell, NetworkBackend, Placement};
use nearmetal_units::{CpuSet, NodeSet};

/// Features of KVM with which a guest polls before its vCPUs sleep.
pub(crate) const POLLING_FEATURES: [&str; 2] = ["hint-dedicated", "poll-control"];

/// A definition that says what a placement says: this one, edited in place.
///
/// # Errors
/// The placement contradicts the definition: a disk or interface that is not there, another number of vCPUs.
pub fn edited(xml: &DomainXml, placement: &Placement) -> Result<DomainXml, DomainError> {
    let mut xml = xml.clone();
    edit(&mut xml, placement)?;
    Ok(xml)
}

/// Edits a definition to say what a placement says.
pub(super) fn edit(xml: &mut DomainXml, placement: &Placement) -> Result<(), DomainError> {
    if placement.vcpus.is_empty() && placement.emulator.is_empty() {
        // A guest that floats. Its memory is left as it is: nothing was decided about it.
        xml.remove_pins()?;
    } else {
        // numad would place vCPUs without an explicit pin, and take the memory's nodes with it.
        xml.set_vcpu_placement_static()?;
        let pins: Vec<(u32, CpuSet)> = placement.vcpus.iter().map(|pin| (pin.vcpu, pin.cpus.clone())).collect();
        xml.set_vcpu_pins(&pins)?;
        xml.set_emulator_pin(&placement.emulator)?;
        if !placement.iothreads.is_empty() {
            xml.set_iothreads(&placement.iothreads)?;
        } else if xml.facts()?.iothreads.ids.contains(&1) {
            // Of devices that nothing was decided about: without a pin they would run on the vCPUs' PUs.
            xml.set_iothreads(std::slice::from_ref(&placement.emulator))?;
        }
    }
    if let Some((sockets, cores, threads)) = topology(xml, placement)? {
        xml.set_topology(sockets, cores, threads)?;
    }
    if !placement.cells.is_empty() {
        let kept = kept_distances(&xml.facts()?, placement).unwrap_or_default();
        let cells = placement.cells.iter().enumerate().map(|(number, cell)| Cell {
            vcpus: cell.vcpus.clone(),
            memory: cell.memory,
            nodes: NodeSet::one(cell.node),
            distances: kept.get(number).unwrap_or(&cell.distances).clone(),
        });
        xml.set_cells(&cells.collect::<Vec<_>>())?;
    }
    if !placement.memory.nodes.is_empty() {
        xml.set_numatune_strict(&placement.memory.nodes)?;
        match placement.memory.page_size {
            Some(size) => xml.set_hugepages(size)?,
            None => xml.remove_hugepages()?,
        };
    }
    for disk in &placement.disks {
        let options = DriverOptions {
            cache: Some(match disk.cache {
                CacheMode::None => DiskCache::None,
                CacheMode::Writeback => DiskCache::Writeback,
            }),
            io: Some(match disk.engine {
                DiskEngine::Threads => DiskIo::Threads,
                DiskEngine::Native => DiskIo::Native,
                DiskEngine::IoUring => DiskIo::IoUring,
            }),
            iothread: disk.iothread,
            iothreads: disk.iothreads,
            // Only virtio disks have queues, and only there is something decided.
            main_loop: disk.queues.is_some() && disk.iothread.or(disk.iothreads).is_none(),
            queues: disk.queues,
        };
        xml.set_disk_driver(&disk.target, &options)?;
    }
    for network in &placement.networks {
        let options = InterfaceOptions {
            backend: match network.backend {
                NetworkBackend::Qemu => nearmetal_domain::NetworkBackend::Qemu,
                NetworkBackend::Vhost => nearmetal_domain::NetworkBackend::Vhost,
            },
            queues: network.queues,
            offloads_off: network.offloads_off,
        };
        xml.set_interface_driver(network.mac, &options)?;
    }
    if let Some(polls) = placement.guest_polls {
        for feature in POLLING_FEATURES {
            // What is not written is not on where the guest is no copy of the host's processor, and there QEMU decides.
            if !polls && xml.facts()?.features.kvm_state(feature) != Some("on") {
                continue;
            }
            let (at, name, value) =
                (format!("features/kvm/{feature}"), "state".to_owned(), if polls { "on" } else { "off" }.to_owned());
            xml.edit(&DefinitionEdit::SetAttribute { at, name, value })?;
        }
    }
    // Nothing was decided about the functions of a guest that is given none: those it has stay.
    if !placement.devices.is_empty() {
        xml.set_functions(&functions(placement))?;
    }
    Ok(())
}

/// The functions a placement gives, in the words of a definition.
pub(super) fn functions(placement: &Placement) -> Vec<Function> {
    let function = |device: &DevicePlacement| Function {
        address: device.function,
        network: match &device.kind {
            FunctionKind::NetworkVirtual { mac, vlan } => Some(NetworkFunction { mac: *mac, vlan: *vlan }),
            FunctionKind::Whole | FunctionKind::Virtual => None,
        },
        cell: device.cell,
    };
    placement.devices.iter().map(function).collect()
}

/// The distances that a definition tells of its cells, where the placement has these very cells and tells none: then only their nodes
/// are decided, and topology and distances stay. Empty ones where they are not all there, which the setter takes away.
fn kept_distances(facts: &DomainFacts, placement: &Placement) -> Option<Vec<Vec<u32>>> {
    let count = placement.cells.len();
    let is_same = |(own, cell): (&CellFacts, &GuestCell)| {
        own.vcpus == cell.vcpus && own.memory == cell.memory && cell.distances.is_empty()
    };
    if facts.cells.len() != count || !facts.cells.iter().zip(&placement.cells).all(is_same) {
        return None;
    }
    let of = |cell: &CellFacts| {
        let mut written = cell.distances.clone();
        written.sort_unstable();
        let all = written.iter().map(|(to, _)| *to).eq(0..count as u32);
        all.then(|| written.into_iter().map(|(_, distance)| distance).collect())
    };
    let all: Option<Vec<Vec<u32>>> = facts.cells.iter().map(of).collect();
    Some(all.unwrap_or_default())
}

/// (sockets, cores of a socket, threads of a core) the guest is to see; `None` where its topology stays as it is.
///
/// Cells of one size get a socket each, as real nodes do: guests read distances and caches from both. vCPUs that are
/// siblings on the host are siblings in the guest.
fn topology(xml: &DomainXml, placement: &Placement) -> Result<Option<(u32, u32, u32)>, DomainError> {
    if placement.threads_per_core.is_none() && placement.cells.is_empty() {
        return Ok(None);
    }
    let facts = xml.facts()?;
    if placement.threads_per_core.is_none() && kept_distances(&facts, placement).is_some() {
        return Ok(None);
    }
    let vcpus = facts.vcpus.maximum;
    let fits =
        |sockets: u32, threads: u32| sockets.checked_mul(threads).is_some_and(|part| part > 0 && vcpus % part == 0);
    let present = facts.cpu.topology;
    let threads = placement.threads_per_core.or_else(|| present.as_ref().map(|present| present.threads)).unwrap_or(1);
    let cells = placement.cells.len() as u32;
    let first = placement.cells.first().map_or(0, |cell| cell.vcpus.len());
    let even = cells > 0 && placement.cells.iter().all(|cell| cell.vcpus.len() == first);
    let sockets = match &present {
        _ if even && fits(cells, threads) => cells,
        // Uneven cells share one socket: no number of equal ones fits their borders.
        _ if cells > 1 => 1,
        Some(present) if fits(present.sockets, threads) => present.sockets,
        _ => 1,
    };
    // A product that is not the number of vCPUs is refused, with all figures, by the setter.
    Ok(Some((sockets, vcpus / sockets.saturating_mul(threads).max(1), threads)))
}
