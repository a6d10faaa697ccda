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
    /// Whether it is dealt to its nodes in equal parts, so that the guest can be shown them.
    pub(crate) is_even: bool,
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

/// The best slice for a guest, or `None` if the machine has none left.
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
    let even = (policy.guest_cells || !guest.shows.cells.is_empty())
        .then(|| even(processors, memory, guest, at(slice.level), &slice))
        .flatten();
    Some(even.unwrap_or(slice))
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
        Slice { cpus: Vec::new(), cpu_nodes: Vec::new(), shared: 0, level, page_size, memory: shares, is_even: false };
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

/// The same nodes, with as many vCPUs on each, whole cores where they can be, and memory in proportion to them. `None` if a node has no
/// room for its part, if memory cannot be dealt in parts that libvirt takes as they are (it rounds cells up to whole MiB), and if the guest
/// has other cells already.
fn even(processors: &Processors, memory: &Memory, guest: &GuestRequest, take: Take, slice: &Slice) -> Option<Slice> {
    let nodes = slice.nodes();
    let size = slice.page_size.unwrap_or(PageSize::SMALL);
    let unit = size.bytes().max(Bytes::from_mib(1));
    let units = guest.memory.get() / unit.get();
    let count = nodes.len() as u32;
    let threads = match take.siblings {
        Siblings::Use => nodes.first().map_or(1, |node| processors.threads(*node)),
        Siblings::Spare => 1,
    };
    let cores = guest.vcpus.div_ceil(threads);
    let shown = &guest.shows.cells;
    let is_other = !shown.is_empty() && shown.len() != nodes.len();
    if is_other || count < 2 || cores < count || guest.memory.get() % unit.get() != 0 {
        return None;
    }
    let mut dealt = Slice {
        cpus: Vec::new(),
        cpu_nodes: nodes.clone(),
        shared: 0,
        memory: Vec::new(),
        is_even: true,
        ..slice.clone()
    };
    let (mut vcpus_left, mut units_left) = (guest.vcpus, units);
    for (place, node) in (0..count).zip(nodes) {
        let cores_here = cores / count + u32::from(place < cores % count);
        let vcpus = (cores_here * threads).min(vcpus_left);
        let share = if place + 1 == count { units_left } else { units * u64::from(vcpus) / u64::from(guest.vcpus) };
        let pages = share * (unit.get() / size.bytes().get());
        let own = guest.vcpus - vcpus_left..guest.vcpus - vcpus_left + vcpus;
        let is_other = shown
            .get(place as usize)
            .is_some_and(|cell| cell.vcpus != own.collect::<CpuSet>() || cell.memory != size.bytes().times(pages));
        let (cpus, shared) = processors.choose(node, take.level, take.siblings, vcpus as usize);
        if is_other || share == 0 || cpus.len() < vcpus as usize || memory.pages(node, size) < pages {
            return None;
        }
        dealt.cpus.extend(cpus);
        dealt.shared += shared;
        dealt.memory.push((node, pages));
        (vcpus_left, units_left) = (vcpus_left - vcpus, units_left - share);
    }
    Some(dealt)
}

/// vCPUs and memory the machine as a whole can still give a guest: what a refusal is measured against.
pub(crate) fn left(processors: &Processors, memory: &Memory, siblings: Siblings, size: PageSize) -> (usize, Bytes) {
    let cpus = processors.nodes().map(|node| processors.room(node, Level::Helpers, siblings)).sum();
    let bytes = memory.nodes().fold(Bytes::ZERO, |sum, node| sum.plus(memory.amount(node, size)));
    (cpus, bytes)
}
