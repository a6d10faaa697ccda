//! A host as its pictures show it: nodes by package, cores by L3 domain, memory, devices, and who owns what.
//!
//! Owners are guests, by what the kernel shows of them: a PU belongs to a guest if one of its threads may run there and
//! not everywhere; memory by the pages found.

use nearmetal_host::{GuestProcess, Host, NumaNode, PciDevice, ThreadRole};
use nearmetal_units::{Bytes, CpuSet, PageSize};

/// A host, ready to be drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct HostMap {
    /// Its name, or where it was read from.
    pub name: String,
    /// Counts, in one line.
    pub counts: String,
    /// Processor and kernel, as far as known.
    pub about: String,
    /// Guests, by the numbers used below.
    pub guests: Vec<String>,
    /// Guests whose threads may run everywhere, and so own no PU.
    pub floating: Vec<usize>,
    /// Nodes by rising index.
    pub nodes: Vec<MapNode>,
    /// Devices whose node is not known, and how many others there are.
    pub strays: Vec<MapDevice>,
    /// Distance from each node to each, in the order of `nodes`; empty where not all are known.
    pub distances: Vec<Vec<u32>>,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct MapNode {
    /// Index; `None` for PUs on no node.
    pub index: Option<u32>,
    /// Packages its PUs are of.
    pub packages: Vec<u32>,
    /// L3 (last-level cache) domains, each a list of cores, each a list of PUs.
    pub domains: Vec<Vec<Vec<MapPu>>>,
    /// Its memory.
    pub memory: MapMemory,
    /// What hangs on it: storage, network, graphics, accelerators.
    pub devices: Vec<MapDevice>,
}

/// A PU.
#[derive(Debug, Clone, PartialEq)]
pub struct MapPu {
    /// Operating-system index.
    pub index: u32,
    /// Whether it is online.
    pub online: bool,
    /// Owners, as guest number and the letter of the thread's role: `v` vCPU, `E` emulator, `I` iothread, `h` vhost.
    pub owners: Vec<(usize, char)>,
}

/// Memory of a node. What is `None` is not known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MapMemory {
    /// All of it.
    pub total: Option<Bytes>,
    /// Free, outside the pools.
    pub free: Option<Bytes>,
    /// Pools that have pages: size, pages, free pages.
    pub pools: Vec<(PageSize, u64, u64)>,
    /// Pages of guests, by guest number.
    pub guests: Vec<(usize, Bytes)>,
    /// How much of that is in hugepages.
    pub guests_huge: Bytes,
}

impl MapMemory {
    /// Hugepages nobody uses, and hugepages that others than the guests use.
    pub fn huge(&self) -> (Bytes, Bytes) {
        let sum = |pages: fn(&(PageSize, u64, u64)) -> u64| {
            let amounts = self.pools.iter().map(|pool| pool.0.bytes().times(pages(pool)));
            amounts.fold(Bytes::ZERO, Bytes::plus)
        };
        (sum(|pool| pool.2), sum(|pool| pool.1.saturating_sub(pool.2)).less(self.guests_huge))
    }

    /// The pools in words; empty if there are none.
    pub fn pools_text(&self) -> String {
        let pools: Vec<_> = self.pools.iter().map(|(size, all, free)| format!("{free} of {all} × {size}")).collect();
        pools.join(", ")
    }
}

/// A device.
#[derive(Debug, Clone, PartialEq)]
pub struct MapDevice {
    /// Its kernel names, or what it is.
    pub name: String,
    /// PCI address.
    pub address: String,
    /// Virtual functions it has now.
    pub vfs: u32,
}

impl HostMap {
    /// The letter of a guest in every picture: A to Z, and `*` for all further ones.
    pub fn letter(guest: usize) -> char {
        u8::try_from(guest).ok().filter(|guest| *guest < 26).map_or('*', |guest| char::from(b'A' + guest))
    }

    /// Gathers what the pictures need.
    pub fn new(host: &Host) -> Self {
        let online = host.online();
        let guests = host.guests.iter().map(|guest| guest.name.clone().unwrap_or_else(|| format!("pid {}", guest.pid)));
        let mut nodes: Vec<_> = host.nodes.iter().map(|numa| node(host, Some(numa), &online)).collect();
        if host.processors.iter().any(|pu| host.node_of_cpu(pu.index).is_none() && pu.online) {
            nodes.push(node(host, None, &online));
        }
        let distances: Option<Vec<Vec<u32>>> =
            host.nodes.iter().map(|from| host.nodes.iter().map(|to| from.distance(to.index)).collect()).collect();
        let system = &host.system;
        let about: Vec<_> =
            [system.processor_model.clone(), system.kernel.as_ref().map(|kernel| format!("Linux {kernel}"))]
                .into_iter()
                .flatten()
                .collect();
        Self {
            name: system.hostname.clone().unwrap_or_else(|| host.source.clone()),
            counts: counts(host),
            about: about.join(" · "),
            guests: guests.collect(),
            floating: (0..host.guests.len()).filter(|guest| floats(&host.guests[*guest], &online)).collect(),
            nodes,
            strays: devices(host, |node| node.is_none_or(|node| host.node(node).is_none())),
            distances: distances.filter(|_| host.nodes.len() > 1).unwrap_or_default(),
        }
    }
}

fn counts(host: &Host) -> String {
    let summary = host.summary();
    let plural = |count: usize, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let mut parts = Vec::new();
    parts.extend(summary.packages.map(|count| plural(count, "package")));
    parts.push(plural(summary.numa_nodes, "node"));
    parts.push(plural(summary.cores, "core"));
    parts.push(plural(summary.pus, "PU"));
    parts.extend(summary.memory.map(|memory| format!("{memory} memory")));
    parts.push(plural(summary.pci_devices, "PCI function"));
    parts.join(" · ")
}

fn floats(guest: &GuestProcess, online: &CpuSet) -> bool {
    let mut vcpus = guest.threads.iter().filter(|thread| matches!(thread.role, ThreadRole::Vcpu(_)));
    vcpus.any(|thread| thread.affinity.as_ref().is_some_and(|cpus| online.is_subset(cpus)))
}

/// A core by its smallest PU, where its PUs are known to be one.
type NamedCore = (Option<u32>, Vec<MapPu>);

fn node(host: &Host, numa: Option<&NumaNode>, online: &CpuSet) -> MapNode {
    let here = |cpu: u32, node: Option<u32>| match numa {
        Some(numa) => numa.cpus.contains(cpu) || node == Some(numa.index),
        None => host.node_of_cpu(cpu).is_none(),
    };
    // In the order of their appearance, so that neighbours stay neighbours.
    let mut domains: Vec<(Option<u32>, Vec<NamedCore>)> = Vec::new();
    let mut packages = Vec::new();
    for pu in host.processors.iter().filter(|pu| here(pu.index, pu.node)) {
        packages.extend(pu.package.filter(|package| !packages.contains(package)));
        // The smallest PU names a set.
        let cache = pu.last_level_cache.as_ref().and_then(CpuSet::first);
        let core = pu.siblings.as_ref().and_then(CpuSet::first);
        let drawn = MapPu { index: pu.index, online: pu.online, owners: owners(host, pu.index, online) };
        let position = domains.iter().position(|(name, _)| *name == cache).unwrap_or_else(|| {
            domains.push((cache, Vec::new()));
            domains.len() - 1
        });
        let cores = &mut domains[position].1;
        match cores.iter_mut().find(|(name, _)| core.is_some() && *name == core) {
            Some((_, pus)) => pus.push(drawn),
            None => cores.push((core, vec![drawn])),
        }
    }
    packages.sort_unstable();
    let index = numa.map(|numa| numa.index);
    MapNode {
        index,
        packages,
        domains: domains.into_iter().map(|(_, cores)| cores.into_iter().map(|(_, pus)| pus).collect()).collect(),
        memory: numa.map(|numa| memory(host, numa)).unwrap_or_default(),
        devices: index.map(|index| devices(host, |node| node == Some(index))).unwrap_or_default(),
    }
}

fn owners(host: &Host, cpu: u32, online: &CpuSet) -> Vec<(usize, char)> {
    let mut owners = Vec::new();
    for (guest, process) in host.guests.iter().enumerate() {
        for thread in &process.threads {
            let letter = match thread.role {
                ThreadRole::Vcpu(_) => 'v',
                ThreadRole::Emulator => 'E',
                ThreadRole::Iothread(_) => 'I',
                ThreadRole::Vhost => 'h',
                ThreadRole::Worker | ThreadRole::Other => continue,
            };
            let bound = thread.affinity.as_ref().is_some_and(|cpus| cpus.contains(cpu) && !online.is_subset(cpus));
            if bound && !owners.contains(&(guest, letter)) {
                owners.push((guest, letter));
            }
        }
    }
    // A vCPU's claim is the one that matters most.
    owners.sort_by_key(|(_, letter)| *letter != 'v');
    owners
}

fn memory(host: &Host, numa: &NumaNode) -> MapMemory {
    let on_node = |guest: &GuestProcess| {
        let nodes = guest.memory_by_node();
        nodes.into_iter().find(|(node, _)| *node == numa.index).map_or(Bytes::ZERO, |(_, amount)| amount)
    };
    let guests = host.guests.iter().enumerate().map(|(number, guest)| (number, on_node(guest)));
    let mappings = host.guests.iter().flat_map(|guest| &guest.residency);
    let guests_huge = mappings
        .filter(|mapping| mapping.guest_memory && mapping.page_size > PageSize::SMALL)
        .flat_map(|mapping| {
            mapping.pages.iter().map(move |(node, pages)| (*node, mapping.page_size.bytes().times(*pages)))
        })
        .filter(|(node, _)| *node == numa.index)
        .fold(Bytes::ZERO, |sum, (_, amount)| sum.plus(amount));
    let pools = numa.pools.iter().filter(|pool| pool.total > 0).map(|pool| (pool.size, pool.total, pool.free));
    MapMemory {
        total: numa.memory_total,
        free: numa.memory_free,
        pools: pools.collect(),
        guests: guests.filter(|(_, amount)| *amount > Bytes::ZERO).collect(),
        guests_huge,
    }
}

/// Devices a guest might want, of one place. Virtual functions are counted with their physical one.
fn devices(host: &Host, here: impl Fn(Option<u32>) -> bool) -> Vec<MapDevice> {
    let mut found = Vec::new();
    for device in host.pci_devices.iter().filter(|device| device.physical_function.is_none() && here(device.node)) {
        let Some(kind) = kind(device) else { continue };
        let blocks = host.block_devices.iter().filter(|block| block.partition_of.is_none());
        let blocks = blocks.filter(|block| block.pci == Some(device.address)).map(|block| block.name.as_str());
        let interfaces = host.network_interfaces.iter().filter(|interface| interface.pci == Some(device.address));
        let names: Vec<&str> = blocks.chain(interfaces.map(|interface| interface.name.as_str())).collect();
        let name = if names.is_empty() { kind.to_owned() } else { names.join(", ") };
        let vfs = device.sriov.as_ref().map_or(0, |sriov| sriov.vfs);
        found.push(MapDevice { name, address: device.address.to_string(), vfs });
    }
    found
}

/// What a class of PCI is to a guest (PCI Code and ID Assignment); `None` for bridges and the chipset's own parts.
fn kind(device: &PciDevice) -> Option<&'static str> {
    let class = device.class.unwrap_or(0);
    match (class >> 16, class >> 8) {
        (0x01, _) => Some("storage"),
        (0x02, _) | (_, 0x0c06) => Some("network"),
        (0x03, _) => Some("graphics"),
        (0x0b | 0x12, _) => Some("accelerator"),
        _ => None,
    }
}
