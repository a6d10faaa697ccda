//! What libvirt holds for the guest, attribute by attribute: someone may have redefined it.

use nearmetal_domain::{DomainFacts, OFFLOADS};
use nearmetal_place::{CacheMode, Placement};
use nearmetal_units::PageSize;

use super::judge::engine_word;
use super::{Check, CheckKind};
use crate::plan_file::POLLING_FEATURES;

/// What is found where a definition does not say.
pub(super) const NOT_SET: &str = "not set";

/// One check for a definition that is as planned; one per attribute that is not.
pub(super) fn judge(kind: CheckKind, placement: &Placement, facts: Option<&Result<DomainFacts, String>>) -> Vec<Check> {
    let name = if kind == CheckKind::StoredDefinition { "stored definition" } else { "definition in force" };
    let facts = match facts {
        None => return Vec::new(),
        Some(Err(why)) => return vec![Check::cannot_tell(kind, name, "as planned", why)],
        Some(Ok(facts)) => facts,
    };
    let attributes = attributes(placement, facts);
    let number = attributes.len();
    let place = if kind == CheckKind::StoredDefinition { "virsh dumpxml --inactive" } else { "virsh dumpxml" };
    let place = format!("{place} {}", placement.guest);
    let wrong: Vec<Check> = attributes
        .into_iter()
        .filter(|attribute| attribute.planned != attribute.found)
        .map(|attribute| {
            let subject = format!("{name}: {}", attribute.name);
            Check::compared(kind, subject, attribute.planned, attribute.found, false).at(place.clone())
        })
        .collect();
    if wrong.is_empty() {
        let planned = format!("{number} values");
        return vec![Check::compared(kind, name, planned, "all as planned", true).at(place)];
    }
    wrong
}

/// Names of what a definition says otherwise than a placement.
pub(crate) fn planned_otherwise(placement: &Placement, facts: &DomainFacts) -> Vec<String> {
    let differing = attributes(placement, facts).into_iter().filter(|attribute| attribute.planned != attribute.found);
    differing.map(|attribute| attribute.name).collect()
}

fn pages(count: u64, size: PageSize) -> String {
    format!("{} in pages of {size}", size.bytes().times(count))
}

struct Attribute {
    name: String,
    planned: String,
    found: String,
}

fn attributes(placement: &Placement, facts: &DomainFacts) -> Vec<Attribute> {
    let mut all = Vec::new();
    let mut add = |name: String, planned: String, found: Option<String>| {
        all.push(Attribute { name, planned, found: found.unwrap_or_else(|| NOT_SET.to_owned()) });
    };
    for pin in &placement.vcpus {
        let found = facts.vcpu_pins.iter().find(|(vcpu, _)| *vcpu == pin.vcpu).map(|(_, cpus)| cpus.to_string());
        add(format!("cputune/vcpupin {}", pin.vcpu), pin.cpus.to_string(), found);
    }
    let pin = |cpus: &nearmetal_units::CpuSet| if cpus.is_empty() { NOT_SET.to_owned() } else { cpus.to_string() };
    let found = facts.emulator_pin.as_ref().map(ToString::to_string);
    add("cputune/emulatorpin".to_owned(), pin(&placement.emulator), found);
    for (cpus, number) in placement.iothreads.iter().zip(1u32..) {
        let found = facts.iothreads.pins.iter().find(|(id, _)| *id == number).map(|(_, cpus)| cpus.to_string());
        add(format!("cputune/iothreadpin {number}"), cpus.to_string(), found);
    }
    if !placement.memory.nodes.is_empty() {
        let found = facts.numatune.as_ref().map(|tune| {
            let nodes = tune.nodes.as_ref().map_or_else(String::new, ToString::to_string);
            format!("{} {nodes}", tune.mode.as_deref().unwrap_or("strict"))
        });
        add("numatune/memory".to_owned(), format!("strict {}", placement.memory.nodes), found);
        let pages = facts.hugepages.as_ref().map(|pages| {
            let sizes: Vec<String> = pages.iter().map(|page| page.size.to_string()).collect();
            if sizes.is_empty() { "the host's default size".to_owned() } else { sizes.join(", ") }
        });
        let planned = placement.memory.page_size.map_or_else(|| NOT_SET.to_owned(), |size| size.to_string());
        add("memoryBacking/hugepages".to_owned(), planned, pages);
    }
    if let Some(size) = placement.memory.page_size {
        let found = facts.memory.get().div_ceil(size.bytes().get());
        add("memory".to_owned(), pages(placement.memory.pages, size), Some(pages(found, size)));
    }
    for (cell, number) in placement.cells.iter().zip(0u32..) {
        let found = facts.cells.iter().find(|found| found.id == number);
        let found = found.map(|found| format!("vCPUs {}, {}", found.vcpus, found.memory));
        add(format!("cpu/numa/cell {number}"), format!("vCPUs {}, {}", cell.vcpus, cell.memory), found);
        let policies = facts.numatune.iter().flat_map(|tune| &tune.cells);
        let found = policies.into_iter().find(|found| found.cell == number).map(|found| {
            let nodes = found.nodes.as_ref().map_or_else(String::new, ToString::to_string);
            format!("{} {nodes}", found.mode.as_deref().unwrap_or("strict"))
        });
        add(format!("numatune/memnode {number}"), format!("strict {}", cell.node), found);
    }
    if let Some(threads) = placement.threads_per_core {
        let found = facts.cpu.topology.as_ref().map(|topology| topology.threads.to_string());
        add("cpu/topology/@threads".to_owned(), threads.to_string(), found);
    }
    for device in &placement.devices {
        let found = facts.functions.iter().find(|found| found.address == device.function);
        // On machine types without buses of cells, none is planned to be shown.
        let cell = device.cell.filter(|_| facts.boot.is_q35());
        let shown = |cell: Option<u32>| cell.map_or_else(|| "given".to_owned(), |cell| format!("given on cell {cell}"));
        let found = found.map(|found| shown(found.cell.filter(|_| cell.is_some())));
        add(format!("PCI function {}", device.function), shown(cell), found);
    }
    for disk in &placement.disks {
        let driver = facts.disks.iter().find(|found| found.target == disk.target).map(|found| &found.driver);
        let of = |attribute: &str| format!("disk {}/driver/@{attribute}", disk.target);
        let cache = match disk.cache {
            CacheMode::None => "none",
            CacheMode::Writeback => "writeback",
        };
        add(of("cache"), cache.to_owned(), driver.and_then(|driver| driver.cache.clone()));
        add(of("io"), engine_word(disk.engine).to_owned(), driver.and_then(|driver| driver.io.clone()));
        if let Some(iothread) = disk.iothread {
            add(
                of("iothread"),
                iothread.to_string(),
                driver.and_then(|driver| driver.iothread).map(|id| id.to_string()),
            );
        }
        if disk.queues.is_some() && disk.iothread.or(disk.iothreads).is_none() {
            let found = driver.and_then(|driver| driver.iothread.or(driver.iothread_mapping.first().copied()));
            add(of("iothread"), NOT_SET.to_owned(), found.map(|id| id.to_string()));
        }
        if let Some(count) = disk.iothreads {
            let found =
                driver.map(|driver| driver.iothread_mapping.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
            let planned: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
            let name = format!("disk {}/driver/iothreads", disk.target);
            add(name, planned.join(" "), found.filter(|found| !found.is_empty()));
        }
        if let Some(queues) = disk.queues {
            add(
                of("queues"),
                queues.to_string(),
                driver.and_then(|driver| driver.queues).map(|count| count.to_string()),
            );
        }
    }
    if let Some(polls) = placement.guest_polls {
        for feature in POLLING_FEATURES {
            let found = facts.features.kvm_state(feature).filter(|state| polls || *state == "on").unwrap_or("off");
            let planned = if polls { "on" } else { "off" };
            add(format!("features/kvm/{feature}"), planned.to_owned(), Some(found.to_owned()));
        }
    }
    for network in &placement.networks {
        let mac = network.mac.to_string();
        let interface = facts.interfaces.iter().find(|found| found.has_mac(&mac));
        let of = |attribute: &str| format!("interface {mac}/driver/{attribute}");
        let name = interface.and_then(|found| found.driver_name.clone());
        add(of("@name"), network.backend.name().to_owned(), name);
        // One queue is what there is where nothing is written.
        let queues = interface.map(|found| found.queues.unwrap_or(1).to_string());
        add(of("@queues"), network.queues.to_string(), queues);
        if network.offloads_off {
            let all: Vec<String> = OFFLOADS
                .iter()
                .flat_map(|(side, names)| names.iter().map(move |name| format!("{side}/{name}")))
                .collect();
            let off = interface.map(|found| {
                let off = all.iter().filter(|name| found.offloads_off.contains(name)).cloned().collect::<Vec<_>>();
                off.join(" ")
            });
            add(of("host and guest, off"), all.join(" "), off);
        }
    }
    all
}
