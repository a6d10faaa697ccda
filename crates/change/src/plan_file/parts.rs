//! What a new definition changes, in words, and whether it waits for the guest's next start.

use nearmetal_domain::{CellFacts, DomainFacts, InterfaceFacts};
use nearmetal_units::{CpuSet, PciAddress};

use super::Part;
use super::edit::POLLING_FEATURES;

const MEMORY: &str = "memory";
const MEMORY_NODES: &str = "memory nodes";
const PAGE_SIZE: &str = "page size";
const GUEST_CELLS: &str = "guest cells";

/// Whether a part's words are of the guest's memory: how much, of what, where.
pub(crate) fn is_of_memory(what: &str) -> bool {
    [MEMORY, MEMORY_NODES, PAGE_SIZE, GUEST_CELLS].contains(&what)
}

/// The differences between what is and what shall be: (needs a restart, can be done while the guest runs).
pub(crate) fn parts(now: &DomainFacts, after: &DomainFacts, online: &CpuSet) -> (Vec<Part>, Vec<Part>) {
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
            let why = "an iothread can take over a disk only when the guest starts";
            add(&mut restart, format!("iothread {id}"), "none".into(), pin_of(&after.iothreads.pins, *id), why);
        }
    }
    const SIZE: &str = "a guest gets its vCPUs and memory when it starts";
    let vcpus = |facts: &DomainFacts| format!("{} of {}", facts.vcpus.current, facts.vcpus.maximum);
    add(&mut restart, "vCPUs".into(), vcpus(now), vcpus(after), SIZE);
    add(&mut restart, MEMORY.into(), now.memory.to_string(), after.memory.to_string(), SIZE);
    add(
        &mut restart,
        MEMORY_NODES.into(),
        memory_text(now),
        memory_text(after),
        "libvirt sets the memory policy when it starts QEMU; pages already allocated would stay where they are",
    );
    add(
        &mut restart,
        PAGE_SIZE.into(),
        page_text(now),
        page_text(after),
        "QEMU maps guest memory once, when it starts",
    );
    const SHOWN: &str = "QEMU builds what the guest sees of its CPUs and memory when it starts";
    add(&mut restart, GUEST_CELLS.into(), cells_text(now), cells_text(after), SHOWN);
    add(&mut restart, "topology".into(), topology_text(now), topology_text(after), SHOWN);
    for feature in POLLING_FEATURES {
        let state = |facts: &DomainFacts| facts.features.kvm_state(feature).unwrap_or("not set").to_owned();
        add(&mut restart, format!("kvm {feature}"), state(now), state(after), SHOWN);
    }
    let q35 = after.boot.is_q35();
    let addresses = now.functions.iter().chain(&after.functions).map(|function| function.address);
    for address in addresses.collect::<std::collections::BTreeSet<_>>() {
        let why = if q35 || after.cells.is_empty() {
            "a guest gets its functions, and their places, when it starts"
        } else {
            "a guest gets its functions when it starts; only machine type q35 can show them on a cell"
        };
        let (from, to) = (function_text(now, address), function_text(after, address));
        add(&mut restart, format!("PCI function {address}"), from, to, why);
    }
    for disk in &after.disks {
        let before = now.disks.iter().find(|before| before.target == disk.target);
        let before = before.map(|before| driver_text(&before.driver)).unwrap_or_else(|| "none".into());
        let why = "QEMU opens a disk, with its cache, engine, iothread and queues, when it starts";
        add(&mut restart, format!("disk {}", disk.target), before, driver_text(&disk.driver), why);
    }
    for interface in after.interfaces.iter().filter(|interface| interface.is_virtio_tap()) {
        // libvirt gives an address to each that it stores; one without is told from no other.
        let Some(mac) = &interface.mac else { continue };
        let before = now.interfaces.iter().find(|before| before.has_mac(mac));
        let before = before.map(interface_text).unwrap_or_else(|| "none".into());
        let why = "QEMU opens a card's queues, and the guest negotiates offloads, when it starts";
        add(&mut restart, format!("interface {mac}"), before, interface_text(interface), why);
    }
    (restart, live)
}

/// Options that are not written are libvirt's defaults, and count as if they were.
fn interface_text(interface: &InterfaceFacts) -> String {
    if !interface.is_virtio_tap() {
        return interface.model.clone().unwrap_or_else(|| "an emulated card".to_owned());
    }
    let backend = interface.driver_name.as_deref().unwrap_or("vhost");
    let queues = interface.queues.unwrap_or(1);
    let plural = if queues == 1 { "" } else { "s" };
    let off = &interface.offloads_off;
    let off = if off.is_empty() { String::new() } else { format!(", off: {}", off.join(" ")) };
    format!("backend {backend}, {queues} queue{plural}{off}")
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
    if driver.names_queues {
        text.push_str(" for queues of its own");
    }
    if let Some(queues) = driver.queues {
        text.push_str(&format!(", {queues} queues"));
    }
    text
}

fn cells_text(facts: &DomainFacts) -> String {
    let policy = |cell: u32| {
        let own = facts.numatune.iter().flat_map(|tune| &tune.cells).find(|own| own.cell == cell);
        let nodes = own.and_then(|own| own.nodes.as_ref());
        nodes.map_or_else(String::new, |nodes| format!(" from node {nodes}"))
    };
    let cell = |cell: &CellFacts| {
        let far: Vec<String> = cell.distances.iter().map(|(_, distance)| distance.to_string()).collect();
        let far = if far.is_empty() { String::new() } else { format!(" at {}", far.join(" ")) };
        format!("vCPUs {} with {}{}{far}", cell.vcpus, cell.memory, policy(cell.id))
    };
    let cells: Vec<String> = facts.cells.iter().map(cell).collect();
    if cells.is_empty() { "none".to_owned() } else { cells.join(", ") }
}

fn topology_text(facts: &DomainFacts) -> String {
    facts.cpu.topology.as_ref().map_or_else(
        || "one socket each".to_owned(),
        |topology| {
            let cores = [topology.dies, topology.clusters, topology.cores];
            let cores = cores.into_iter().fold(1u64, |product, part| product.saturating_mul(u64::from(part)));
            format!("{} sockets of {cores} cores of {} threads", topology.sockets, topology.threads)
        },
    )
}

fn function_text(facts: &DomainFacts, address: PciAddress) -> String {
    let Some(function) = facts.functions.iter().find(|function| function.address == address) else {
        return "not given".to_owned();
    };
    let kind = if function.interface { "given as interface" } else { "given" };
    let vlans: String = function.vlans.iter().map(|vlan| format!(", VLAN {vlan}")).collect();
    let mac = function.mac.as_ref().map_or_else(String::new, |mac| format!(", {mac}"));
    let place = function.cell.map_or_else(String::new, |cell| format!(" on cell {cell}"));
    format!("{kind}{place}{mac}{vlans}")
}
