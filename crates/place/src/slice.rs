//! The nodes, PUs and pages of one guest.

use std::cmp::Reverse;

use nearmetal_units::{Bytes, PageSize};

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
    best.map(|(_, slice)| slice)
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
    let mut slice = Slice { cpus: Vec::new(), cpu_nodes: Vec::new(), shared: 0, level, page_size, memory: shares };
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

/// vCPUs and memory the machine as a whole can still give a guest: what a refusal is measured against.
pub(crate) fn left(processors: &Processors, memory: &Memory, siblings: Siblings, size: PageSize) -> (usize, Bytes) {
    let cpus = processors.nodes().map(|node| processors.room(node, Level::Helpers, siblings)).sum();
    let bytes = memory.nodes().fold(Bytes::ZERO, |sum, node| sum.plus(memory.amount(node, size)));
    (cpus, bytes)
}
