//! Where the planner's answer and the domains' definitions meet: each definition is edited to say what its placement
//! says, and the difference is sorted into what can be done at once and what waits for a start.

use nearmetal_domain::{DiskCache, DiskIo, DomainFacts, DomainXml, DriverOptions};
use nearmetal_host::Host;
use nearmetal_place::{CacheMode, DiskEngine, Placement, Plan};
use nearmetal_units::CpuSet;

use super::{DomainChange, HostIdentity, PLAN_SCHEMA, Part, PlanFile};
use crate::{ChangeError, timestamp};

/// A domain as found.
#[derive(Debug, Clone)]
pub struct DomainInput {
    /// Its name.
    pub name: String,
    /// Its stored definition.
    pub inactive_xml: String,
    /// The definition in force, if it runs.
    pub live_xml: Option<String>,
}

/// Turns a placement of each domain into new definitions. Domains the planner blocked are left out: the plan says why.
pub fn compose(host: &Host, plan: &Plan, domains: &[DomainInput]) -> Result<PlanFile, ChangeError> {
    let changes = plan.placements.iter().map(|placement| {
        let domain = domains.iter().find(|domain| domain.name == placement.guest).ok_or_else(|| {
            let problem = "the planner placed it, and its definition was not given".to_owned();
            ChangeError::Compose { domain: placement.guest.clone(), problem }
        })?;
        domain_change(host, placement, domain)
    });
    Ok(PlanFile {
        schema: PLAN_SCHEMA.to_owned(),
        created: timestamp::now(),
        nearmetal: env!("CARGO_PKG_VERSION").to_owned(),
        host: HostIdentity::of(host),
        domains: changes.collect::<Result<_, _>>()?,
        plan: plan.clone(),
    })
}

fn domain_change(host: &Host, placement: &Placement, domain: &DomainInput) -> Result<DomainChange, ChangeError> {
    let failed = |problem: String| ChangeError::Compose { domain: domain.name.clone(), problem };
    let parse = |text: &str| DomainXml::parse(text).map_err(|error| failed(error.to_string()));
    let mut xml = parse(&domain.inactive_xml)?;
    edit(&mut xml, placement).map_err(|error| failed(error.to_string()))?;
    let facts = |xml: &DomainXml| xml.facts().map_err(|error| failed(error.to_string()));
    // What a running guest does is in its live definition: the stored one may have been edited since it started.
    let now = facts(&parse(domain.live_xml.as_deref().unwrap_or(&domain.inactive_xml))?)?;
    let after = facts(&xml)?;
    let (needs_restart, live_now) = parts(&now, &after, &host.online());
    Ok(DomainChange {
        name: domain.name.clone(),
        uuid: placement.uuid.clone(),
        xml_before: domain.inactive_xml.clone(),
        xml_after: xml.to_string(),
        needs_restart,
        live_now,
    })
}

fn edit(xml: &mut DomainXml, placement: &Placement) -> Result<(), nearmetal_domain::DomainError> {
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
        }
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
            queues: disk.queues,
        };
        xml.set_disk_driver(&disk.target, &options)?;
    }
    Ok(())
}

/// The differences between what is and what shall be: (needs a restart, can be done while the guest runs).
fn parts(now: &DomainFacts, after: &DomainFacts, online: &CpuSet) -> (Vec<Part>, Vec<Part>) {
    let (mut restart, mut live) = (Vec::new(), Vec::new());
    let add = |list: &mut Vec<Part>, what: String, from: String, to: String, why: &str| {
        if from != to {
            list.push(Part { what, change: format!("{from} -> {to}"), why: why.to_owned() });
        }
    };
    // A thread without a pin runs where <vcpu cpuset> says, or anywhere.
    let floating = now.vcpus.cpuset.clone().unwrap_or_else(|| online.clone());
    let pin_of = |pins: &[(u32, CpuSet)], number: u32| {
        let pin = pins.iter().find(|(own, _)| *own == number).map(|(_, cpus)| cpus.clone());
        pin.unwrap_or_else(|| floating.clone()).to_string()
    };
    const PINS: &str = "the kernel moves threads of a running guest at once";
    for vcpu in 0..after.vcpus.maximum {
        let (from, to) = (pin_of(&now.vcpu_pins, vcpu), pin_of(&after.vcpu_pins, vcpu));
        add(&mut live, format!("vCPU {vcpu}"), from, to, PINS);
    }
    let emulator = |facts: &DomainFacts| facts.emulator_pin.clone().unwrap_or_else(|| floating.clone()).to_string();
    add(&mut live, "emulator thread".into(), emulator(now), emulator(after), PINS);
    for id in &after.iothreads.ids {
        if now.iothreads.ids.contains(id) {
            let (from, to) = (pin_of(&now.iothreads.pins, *id), pin_of(&after.iothreads.pins, *id));
            add(&mut live, format!("iothread {id}"), from, to, PINS);
        } else {
            let why = "an iothread serves a disk only from the guest's start on";
            add(&mut restart, format!("iothread {id}"), "none".into(), pin_of(&after.iothreads.pins, *id), why);
        }
    }
    add(
        &mut restart,
        "memory nodes".into(),
        memory_text(now),
        memory_text(after),
        "libvirt sets the memory policy when it starts QEMU; pages already there would stay where they are",
    );
    add(
        &mut restart,
        "page size".into(),
        page_text(now),
        page_text(after),
        "QEMU maps guest memory once, when it starts",
    );
    for disk in &after.disks {
        let before = now.disks.iter().find(|before| before.target == disk.target);
        let before = before.map(|before| driver_text(&before.driver)).unwrap_or_else(|| "none".into());
        let why = "QEMU opens a disk, with its cache, engine, iothread and queues, when it starts";
        add(&mut restart, format!("disk {}", disk.target), before, driver_text(&disk.driver), why);
    }
    (restart, live)
}

fn memory_text(facts: &DomainFacts) -> String {
    match &facts.numatune {
        Some(tune) => {
            let nodes = tune.nodes.as_ref().map_or_else(|| "any node".to_owned(), |nodes| format!("nodes {nodes}"));
            format!("{} {nodes}", tune.mode.as_deref().unwrap_or("strict"))
        }
        None => "any node".to_owned(),
    }
}

fn page_text(facts: &DomainFacts) -> String {
    match &facts.hugepages {
        None => "the kernel's choice".to_owned(),
        Some(pages) if pages.is_empty() => "huge pages of the host's default size".to_owned(),
        Some(pages) => pages.iter().map(|page| page.size.to_string()).collect::<Vec<_>>().join(", "),
    }
}

/// Options that are not written are QEMU's defaults, and count as if they were.
fn driver_text(driver: &nearmetal_domain::DriverFacts) -> String {
    let mut text = format!(
        "cache {}, io {}",
        driver.cache.as_deref().filter(|cache| *cache != "default").unwrap_or("writeback"),
        driver.io.as_deref().unwrap_or("threads")
    );
    if let Some(iothread) = driver.iothread {
        text.push_str(&format!(", iothread {iothread}"));
    }
    for iothread in &driver.iothread_mapping {
        text.push_str(&format!(", iothread {iothread}"));
    }
    if let Some(queues) = driver.queues {
        text.push_str(&format!(", {queues} queues"));
    }
    text
}
