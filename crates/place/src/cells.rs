//! Cells of a guest that lies on several nodes: the nodes as it sees them.

use nearmetal_units::{CpuSet, PageSize};

use crate::distances::Distances;
use crate::plan::GuestCell;
use crate::processors::Processors;
use crate::slice::Slice;

/// A cell for each node of a guest that is dealt to its nodes evenly, in the order of its vCPUs; else none: a guest that was shown
/// uneven nodes would crowd the one and keep off the other.
pub(crate) fn of(distances: &Distances, processors: &Processors, slice: &Slice) -> Vec<GuestCell> {
    if !slice.is_even {
        return Vec::new();
    }
    let unit = slice.page_size.unwrap_or(PageSize::SMALL).bytes();
    let cell = |(node, pages): &(u32, u64)| {
        let cpus = processors.all(*node);
        let vcpus = (0u32..).zip(&slice.cpus).filter(|(_, cpu)| cpus.contains(**cpu)).map(|(vcpu, _)| vcpu);
        GuestCell {
            vcpus: vcpus.collect::<CpuSet>(),
            memory: unit.times(*pages),
            node: *node,
            distances: slice.cpu_nodes.iter().map(|other| distances.between(*node, *other)).collect(),
        }
    };
    slice.memory.iter().map(cell).collect()
}
