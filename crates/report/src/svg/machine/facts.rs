//! What the picture shows, per node: gathered from the host and the slice, before any thought of coordinates.

use nearmetal_host::{Host, NumaNode, PciDevice};
use nearmetal_units::{Bytes, PageSize};

use crate::view::{SliceDevice, SliceRole, SliceView};

/// The machine.
pub(super) struct Machine {
    /// Nodes, in groups of one package each.
    pub(super) packages: Vec<Package>,
    /// Devices whose node is not known.
    pub(super) strays: Vec<Device>,
}

/// Nodes of one package.
pub(super) struct Package {
    /// Package number.
    pub(super) number: Option<u32>,
    /// Its nodes.
    pub(super) nodes: Vec<Node>,
}

/// One node.
pub(super) struct Node {
    /// Index; `None` for PUs the kernel puts on no node.
    pub(super) index: Option<u32>,
    /// PUs by core.
    pub(super) cores: Vec<Vec<Pu>>,
    /// Its memory.
    pub(super) memory: Memory,
    /// Devices that hang on it.
    pub(super) devices: Vec<Device>,
    /// How the slice touches it.
    pub(super) touch: Touch,
}

/// One PU.
pub(super) struct Pu {
    pub(super) index: u32,
    pub(super) online: bool,
    /// Threads bound to it, by role.
    pub(super) owners: Vec<(SliceRole, Option<u32>)>,
    /// Whether unbound threads of the VM may run here.
    pub(super) floating: bool,
}

/// Memory of a node, split without overlap. `total` is `None` where the kernel does not say.
pub(super) struct Memory {
    pub(super) total: Option<Bytes>,
    /// The VM's pages.
    pub(super) guest: Bytes,
    /// Page sizes of the VM's pages here.
    pub(super) guest_sizes: Vec<PageSize>,
    /// Hugepages in use by others.
    pub(super) huge_used: Bytes,
    /// Hugepages nobody uses yet.
    pub(super) huge_free: Bytes,
    /// Free memory outside the pools.
    pub(super) free: Option<Bytes>,
    /// Pools that have pages: size, pages, free pages.
    pub(super) pools: Vec<(PageSize, u64, u64)>,
}

/// One device.
pub(super) struct Device {
    pub(super) name: String,
    /// PCI address.
    pub(super) address: String,
    /// Virtual functions it has now.
    pub(super) vfs: u32,
    /// What the VM uses it as, if it does.
    pub(super) purpose: Option<String>,
}

/// How the slice touches a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// Not at all, or by a device only.
    None,
    /// Pages only.
    Pages,
    /// Its threads may run here but are bound nowhere.
    Floating,
    /// Only threads that virtualization costs on top are bound here: no vCPU, no page.
    Helpers,
    /// vCPUs are bound here.
    Bound,
}

/// Gathers the facts.
pub(super) fn gather(host: &Host, slice: &SliceView) -> Machine {
    let mut packages: Vec<Package> = Vec::new();
    let mut add = |number: Option<u32>, node: Node| match packages
        .iter_mut()
        .find(|package| package.number == number && number.is_some())
    {
        Some(package) => package.nodes.push(node),
        None => packages.push(Package { number, nodes: vec![node] }),
    };
    for numa in &host.nodes {
        let package = host.processors.iter().find(|pu| numa.cpus.contains(pu.index)).and_then(|pu| pu.package);
        let cores = cores(host, slice, |index, node| node == Some(numa.index) || numa.cpus.contains(index));
        add(package, node(host, slice, Some(numa), cores));
    }
    // A kernel without NUMA lists no nodes; its PUs are shown all the same.
    let homeless = cores(host, slice, |index, node| {
        node.is_none_or(|node| host.node(node).is_none()) && host.node_of_cpu(index).is_none()
    });
    if !homeless.is_empty() {
        add(None, node(host, slice, None, homeless));
    }
    packages.sort_by_key(|package| package.number.unwrap_or(u32::MAX));
    let strays = devices(host, slice, |node| node.is_none_or(|node| host.node(node).is_none()));
    Machine { packages, strays }
}

fn node(host: &Host, slice: &SliceView, numa: Option<&NumaNode>, cores: Vec<Vec<Pu>>) -> Node {
    let index = numa.map(|numa| numa.index);
    let memory = memory(numa, slice);
    let pus = || cores.iter().flatten();
    let vcpus = pus().any(|pu| pu.owners.iter().any(|(role, _)| *role == SliceRole::Vcpu));
    let bound = pus().any(|pu| !pu.owners.is_empty());
    let touch = if vcpus || (bound && memory.guest > Bytes::ZERO) {
        Touch::Bound
    } else if bound {
        Touch::Helpers
    } else if pus().any(|pu| pu.floating) {
        Touch::Floating
    } else if memory.guest > Bytes::ZERO {
        Touch::Pages
    } else {
        Touch::None
    };
    let devices = index.map(|index| devices(host, slice, |node| node == Some(index))).unwrap_or_default();
    Node { index, cores, memory, devices, touch }
}

/// PUs of one place, grouped by core as the kernel's sibling lists say.
fn cores(host: &Host, slice: &SliceView, here: impl Fn(u32, Option<u32>) -> bool) -> Vec<Vec<Pu>> {
    let mut cores: Vec<(Option<u32>, Vec<Pu>)> = Vec::new();
    for processor in host.processors.iter().filter(|pu| here(pu.index, pu.node)) {
        let owners = slice.threads.iter().filter(|thread| !thread.floating && thread.cpus.contains(processor.index));
        let floating = slice.threads.iter().any(|thread| {
            thread.floating && processor.online && (thread.cpus.is_empty() || thread.cpus.contains(processor.index))
        });
        let pu = Pu {
            index: processor.index,
            online: processor.online,
            owners: owners.map(|thread| (thread.role, thread.number)).collect(),
            floating,
        };
        // The smallest sibling names the core.
        let core = processor.siblings.as_ref().and_then(|siblings| siblings.first());
        match cores.iter_mut().find(|(name, _)| core.is_some() && *name == core) {
            Some((_, pus)) => pus.push(pu),
            None => cores.push((core, vec![pu])),
        }
    }
    cores.into_iter().map(|(_, pus)| pus).collect()
}

fn memory(numa: Option<&NumaNode>, slice: &SliceView) -> Memory {
    let mut memory = Memory {
        total: numa.and_then(|numa| numa.memory_total),
        guest: Bytes::ZERO,
        guest_sizes: Vec::new(),
        huge_used: Bytes::ZERO,
        huge_free: Bytes::ZERO,
        free: numa.and_then(|numa| numa.memory_free),
        pools: Vec::new(),
    };
    let Some(numa) = numa else { return memory };
    let mut guest_huge = Bytes::ZERO;
    for pages in slice.pages.iter().flatten().filter(|pages| pages.node == numa.index && pages.pages > 0) {
        let amount = pages.size.bytes().times(pages.pages);
        memory.guest = memory.guest.plus(amount);
        if pages.size > PageSize::SMALL {
            guest_huge = guest_huge.plus(amount);
        }
        if !memory.guest_sizes.contains(&pages.size) {
            memory.guest_sizes.push(pages.size);
        }
    }
    let mut used = Bytes::ZERO;
    for pool in numa.pools.iter().filter(|pool| pool.total > 0) {
        memory.pools.push((pool.size, pool.total, pool.free));
        memory.huge_free = memory.huge_free.plus(pool.size.bytes().times(pool.free));
        used = used.plus(pool.size.bytes().times(pool.total.saturating_sub(pool.free)));
    }
    memory.huge_used = used.less(guest_huge);
    memory
}

/// Drives, network interfaces and accelerators of one place, and whatever else the VM uses there.
fn devices(host: &Host, slice: &SliceView, here: impl Fn(Option<u32>) -> bool) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    let worth = |device: &&PciDevice| {
        let class = device.class.unwrap_or(0) >> 16;
        // Mass storage, network, processing accelerators; VFs are counted with their PF.
        device.physical_function.is_none() && matches!(class, 0x01 | 0x02 | 0x12) && here(device.node)
    };
    for device in host.pci_devices.iter().filter(worth) {
        let names = host
            .block_devices
            .iter()
            .filter(|block| block.partition_of.is_none() && block.pci == Some(device.address))
            .map(|block| block.name.clone())
            .chain(
                host.network_interfaces
                    .iter()
                    .filter(|interface| interface.pci == Some(device.address))
                    .map(|interface| interface.name.clone()),
            )
            .collect::<Vec<_>>();
        let used = slice.devices.iter().find(|used| used.pci == Some(device.address) || names.contains(&used.name));
        let vfs = device.sriov.as_ref().map_or(0, |sriov| sriov.vfs);
        let address = device.address.to_string();
        let name = if names.is_empty() { kind(device).to_owned() } else { names.join(", ") };
        devices.push(Device { name, address, vfs, purpose: used.map(|used| used.purpose.clone()) });
    }
    let shown = |used: &&SliceDevice| {
        here(used.node) && !devices.iter().any(|device| device.purpose.as_deref() == Some(used.purpose.as_str()))
    };
    let more: Vec<_> = slice.devices.iter().filter(shown).collect();
    for used in more {
        let address = used.pci.map(|pci| pci.to_string()).unwrap_or_default();
        devices.push(Device { name: used.name.clone(), address, vfs: 0, purpose: Some(used.purpose.clone()) });
    }
    // What the VM uses first: a crowded node shows only the first few.
    devices.sort_by_key(|device| device.purpose.is_none());
    devices
}

fn kind(device: &PciDevice) -> &'static str {
    match device.class.unwrap_or(0) >> 16 {
        0x01 => "storage",
        0x02 => "network",
        _ => "accelerator",
    }
}

/// The picture in words, for those who cannot see it.
pub(super) fn describe(machine: &Machine, guest: &str) -> String {
    let mut sentences = Vec::new();
    for node in machine.packages.iter().flat_map(|package| &package.nodes) {
        let name = node.index.map_or("PUs without a node".to_owned(), |index| format!("node {index}"));
        let bound: Vec<_> = node.cores.iter().flatten().filter(|pu| !pu.owners.is_empty()).collect();
        let mut parts = Vec::new();
        for pu in &bound {
            let owners: Vec<_> = pu.owners.iter().map(|(role, number)| owner_name(*role, *number)).collect();
            parts.push(format!("PU {} holds {}", pu.index, owners.join(" and ")));
        }
        if node.touch == Touch::Floating {
            parts.push("its threads may float here".to_owned());
        }
        if node.memory.guest > Bytes::ZERO {
            parts.push(format!("{} of its memory", node.memory.guest));
        }
        for device in node.devices.iter().filter(|device| device.purpose.is_some()) {
            parts.push(format!("{} as {}", device.name, device.purpose.as_deref().unwrap_or_default()));
        }
        if !parts.is_empty() {
            sentences.push(format!("{name}: {}", parts.join(", ")));
        }
    }
    if sentences.is_empty() {
        format!("{guest} touches no node")
    } else {
        format!("What {guest} occupies. {}", sentences.join("; "))
    }
}

/// A thread in words: `vCPU 0`, `iothread 1`.
pub(super) fn owner_name(role: SliceRole, number: Option<u32>) -> String {
    let name = match role {
        SliceRole::Vcpu => "vCPU",
        SliceRole::Emulator => "emulator thread",
        SliceRole::Iothread => "iothread",
        SliceRole::Vhost => "vhost worker",
    };
    number.map_or(name.to_owned(), |number| format!("{name} {number}"))
}
