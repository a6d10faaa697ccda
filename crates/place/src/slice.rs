//! The nodes, PUs and pages of one guest.

use std::cmp::Reverse;

use nearmetal_units::{Bytes, CpuSet, PageSize};

use crate::distances::Distances;
use crate::memory::{Memory, Share};
use crate::policy::{Policy, Siblings};
use crate::processors::{Level, Processors};
use crate::request::GuestRequest;

/// What one guest gets.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    /// One PU per vCPU.
    pub(crate) cpus: Vec<u32>,
    /// Nodes of these PUs, the guest's own node first.
    pub(crate) cpu_nodes: Vec<u32>,
    /// How many of the PUs are on cores somebody else uses too.
    pub(crate) shared: usize,
    /// What the PUs were taken from.
    pub(crate) level: Level,
    /// Page size of the pool; `None` for the kernel's own choice.
    pub(crate) page_size: Option<PageSize>,
    /// Pages by node.
    pub(crate) memory: Vec<Share>,
    /// Whether it is dealt to its nodes as cells of the guest: vCPUs and memory of each belong together.
    pub(crate) in_cells: bool,
}

/// What PUs are taken.
#[derive(Debug, Clone, Copy)]
struct Take {
    level: Level,
    siblings: Siblings,
}

/// Page sizes worth trying for a guest, best first.
pub(crate) fn page_sizes(guest: &GuestRequest, memory: &Memory, policy: &Policy) -> Vec<Option<PageSize>> {
    let mut sizes = Vec::new();
    if policy.hugepages {
        let whole = guest.memory.get() % PageSize::HUGE_1G.bytes().get() == 0;
        if policy.gigantic_pages && whole && memory.has_pool(PageSize::HUGE_1G) {
            sizes.push(Some(PageSize::HUGE_1G));
        }
        if memory.has_pool(PageSize::HUGE_2M) {
            sizes.push(Some(PageSize::HUGE_2M));
        }
    }
    if sizes.is_empty() {
        sizes.push(None);
    }
    sizes
}

/// The best slice for a guest, or `None` if the machine has none left, or none for cells that are bound to nodes.
///
/// Best, in this order: without taking PUs from other guests' helper threads; on few nodes; on the node next to its
/// devices; in larger pages; without the host's core; near that node; on whole cores; where most is free.
pub(crate) fn find(
    distances: &Distances,
    processors: &Processors,
    memory: &Memory,
    policy: &Policy,
    guest: &GuestRequest,
    anchor: Option<u32>,
) -> Option<Slice> {
    let sizes = page_sizes(guest, memory, policy);
    let at = |level: Level| Take { level, siblings: policy.siblings };
    // Nothing beats all of it on the device's own node, from free PUs, in the largest pages.
    if let (Some(anchor), Some(size)) = (anchor, sizes.first()) {
        let slice = grow(distances, processors, memory, guest, anchor, at(Level::Free), *size);
        if let Some(slice) = slice.filter(|slice| slice.nodes() == [anchor]) {
            return Some(slice);
        }
    }
    let mut best = None;
    for (size_rank, page_size) in sizes.into_iter().enumerate() {
        for level in Level::ALL {
            for seed in processors.nodes() {
                let Some(slice) = grow(distances, processors, memory, guest, seed, at(level), page_size) else {
                    continue;
                };
                let nodes = slice.nodes();
                let sum_from = |origin: u32| -> u32 { nodes.iter().map(|node| distances.between(origin, *node)).sum() };
                let size = page_size.unwrap_or(PageSize::SMALL);
                let key = (
                    (level == Level::Helpers, nodes.len(), anchor.is_some_and(|anchor| anchor != seed)),
                    (size_rank, level, anchor.map_or(0, sum_from), sum_from(seed), slice.shared),
                    Reverse(processors.free_in_whole_cores(seed, level)),
                    Reverse(memory.amount(seed, size)),
                    seed,
                );
                if best.as_ref().is_none_or(|(other, _)| key < *other) {
                    best = Some((key, slice));
                }
            }
        }
    }
    let slice = best.map(|(_, slice)| slice)?;
    let wants_cells = policy.guest_cells || !guest.shows.cells.is_empty();
    let dealt = |level: Level| in_cells(processors, memory, guest, at(level), &slice);
    match wants_cells.then(|| dealt(slice.level)).flatten() {
        Some(dealt) => Some(dealt),
        // The nodes would have to give what the slice does not have there.
        None if keeps_bound_cells(guest, &slice) => {
            Level::ALL.into_iter().filter(|level| *level > slice.level).find_map(dealt)
        }
        None => Some(slice),
    }
}

/// Whether cells of a guest stay bound to nodes of a slice that is not dealt to them: its definition keeps the policy of each
/// cell whose node is among those of its memory, where that is more than one node.
fn keeps_bound_cells(guest: &GuestRequest, slice: &Slice) -> bool {
    let mut bound = guest.shows.cells.iter().filter_map(|cell| cell.node);
    slice.memory.len() > 1 && bound.any(|node| slice.memory.iter().any(|(own, _)| *own == node))
}

impl Slice {
    /// All nodes it touches, the guest's own first.
    pub(crate) fn nodes(&self) -> Vec<u32> {
        let mut nodes = self.cpu_nodes.clone();
        nodes.extend(self.memory.iter().map(|(node, _)| *node).filter(|node| !self.cpu_nodes.contains(node)));
        nodes
    }
}

/// A slice around one node: it, and the nearest others that give what is missing.
fn grow(
    distances: &Distances,
    processors: &Processors,
    memory: &Memory,
    guest: &GuestRequest,
    seed: u32,
    take: Take,
    page_size: Option<PageSize>,
) -> Option<Slice> {
    let size = page_size.unwrap_or(PageSize::SMALL);
    let shares = memory.spread(distances.around(seed), size, guest.memory.pages(size))?;
    let wanted = guest.vcpus as usize;
    let level = take.level;
    let mut slice =
        Slice { cpus: Vec::new(), cpu_nodes: Vec::new(), shared: 0, level, page_size, memory: shares, in_cells: false };
    for node in distances.around(seed) {
        let (cpus, shared) = processors.choose(node, level, take.siblings, wanted - slice.cpus.len());
        if !cpus.is_empty() {
            slice.cpu_nodes.push(node);
            slice.cpus.extend(cpus);
            slice.shared += shared;
        }
        if slice.cpus.len() == wanted {
            return Some(slice);
        }
    }
    None
}

/// The same nodes, with vCPUs and memory of each as the guest's cells have them: those that it has, or else as many whole cores on each,
/// and memory in proportion. `None` if a node has no room for its part, or memory cannot be dealt in parts that libvirt takes as they are:
/// it rounds cells up to whole MiB.
fn in_cells(
    processors: &Processors,
    memory: &Memory,
    guest: &GuestRequest,
    take: Take,
    slice: &Slice,
) -> Option<Slice> {
    let size = slice.page_size.unwrap_or(PageSize::SMALL);
    let shown = &guest.shows.cells;
    let (nodes, parts) = match shown.is_empty() {
        true => {
            let nodes = slice.nodes();
            let threads = match take.siblings {
                Siblings::Use => nodes.first().map_or(1, |node| processors.threads(*node)).max(guest.shows.threads),
                Siblings::Spare => 1,
            };
            let parts = equal_parts(guest, nodes.len() as u32, threads, size.bytes().max(Bytes::from_mib(1)))?;
            (nodes, parts)
        }
        false => (nodes_of_cells(guest, slice)?, parts_of_cells(guest, size)?),
    };
    let mut dealt = Slice {
        cpus: Vec::new(),
        cpu_nodes: nodes.clone(),
        shared: 0,
        level: take.level,
        memory: Vec::new(),
        in_cells: true,
        ..slice.clone()
    };
    for (node, (vcpus, share)) in nodes.into_iter().zip(parts) {
        let pages = share.get() / size.bytes().get();
        let (cpus, shared) = processors.choose(node, take.level, take.siblings, vcpus as usize);
        if pages == 0 || cpus.len() < vcpus as usize || memory.pages(node, size) < pages {
            return None;
        }
        dealt.cpus.extend(cpus);
        dealt.shared += shared;
        dealt.memory.push((node, pages));
    }
    Some(dealt)
}

/// vCPUs and memory of so many equal parts of a guest: whole cores of `threads`, memory in whole `unit`s and in proportion to vCPUs.
/// A core that the guest does not fill is of the last part of those with the most cores: parts differ by one core at most.
fn equal_parts(guest: &GuestRequest, count: u32, threads: u32, unit: Bytes) -> Option<Vec<(u32, Bytes)>> {
    let cores = guest.vcpus.div_ceil(threads);
    if count < 2 || cores < count || guest.memory.get() % unit.get() != 0 {
        return None;
    }
    let units = guest.memory.get() / unit.get();
    let unfilled = cores * threads - guest.vcpus;
    let last_of_the_larger = (cores - 1) % count;
    let mut units_left = units;
    let part = |place: u32| {
        let whole = (cores / count + u32::from(place < cores % count)) * threads;
        let vcpus = if place == last_of_the_larger { whole - unfilled } else { whole };
        let share = if place + 1 == count { units_left } else { units * u64::from(vcpus) / u64::from(guest.vcpus) };
        units_left -= share;
        (vcpus, unit.times(share))
    };
    Some((0..count).map(part).collect())
}

/// vCPUs and memory of the cells that a guest has; `None` where they do not go through its vCPUs in turn, or are no whole pages.
fn parts_of_cells(guest: &GuestRequest, size: PageSize) -> Option<Vec<(u32, Bytes)>> {
    let mut next = 0;
    let mut parts = Vec::new();
    for cell in &guest.shows.cells {
        let end = next + cell.vcpus.len() as u32;
        if cell.vcpus != (next..end).collect::<CpuSet>() || cell.memory.get() % size.bytes().get() != 0 {
            return None;
        }
        parts.push((end - next, cell.memory));
        next = end;
    }
    let memory = parts.iter().fold(Bytes::ZERO, |sum, (_, memory)| sum.plus(*memory));
    (next == guest.vcpus && memory == guest.memory).then_some(parts)
}

/// The nodes of a guest's cells: those that they are bound to, and for the others those of the slice in turn.
fn nodes_of_cells(guest: &GuestRequest, slice: &Slice) -> Option<Vec<u32>> {
    let nodes = slice.nodes();
    let cells = &guest.shows.cells;
    let bound: Vec<u32> = cells.iter().filter_map(|cell| cell.node).collect();
    let mut sorted = bound.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if cells.len() < 2 || sorted.len() < bound.len() || (bound.is_empty() && nodes.len() != cells.len()) {
        return None;
    }
    let mut free = nodes.into_iter().filter(|node| !bound.contains(node));
    cells.iter().map(|cell| cell.node.or_else(|| free.next())).collect()
}

/// vCPUs and memory the machine as a whole can still give a guest: what a refusal is measured against.
pub(crate) fn left(processors: &Processors, memory: &Memory, siblings: Siblings, size: PageSize) -> (usize, Bytes) {
    let cpus = processors.nodes().map(|node| processors.room(node, Level::Helpers, siblings)).sum();
    let bytes = memory.nodes().fold(Bytes::ZERO, |sum, node| sum.plus(memory.amount(node, size)));
    (cpus, bytes)
}
