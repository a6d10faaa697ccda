//! Cells of a guest that lies on several nodes: the nodes as it sees them.

use nearmetal_units::{CpuSet, PageSize};

use crate::distances::{Distances, LOCAL};
use crate::plan::GuestCell;
use crate::processors::Processors;
use crate::request::GuestRequest;
use crate::slice::Slice;

/// A cell for each node of a guest whose slice is dealt to its nodes so, in the order of its vCPUs; else none: a guest that was shown
/// nodes whose vCPUs and memory do not belong together would crowd the one and keep off the other.
///
/// Cells that it has already are told no distances: what its definition says of them stays.
pub(crate) fn of(
    distances: &Distances,
    processors: &Processors,
    guest: &GuestRequest,
    slice: &Slice,
) -> Vec<GuestCell> {
    if !slice.in_cells {
        return Vec::new();
    }
    // ACPI's SLIT: 10 is local and nothing else is. What a firmware says otherwise is not passed on.
    let nodes = &slice.cpu_nodes;
    let good = |from: &u32, to: &u32| {
        (distances.between(*from, *to) == LOCAL) == (from == to) && distances.between(*from, *to) < 255
    };
    let told = guest.shows.cells.is_empty() && nodes.iter().all(|from| nodes.iter().all(|to| good(from, to)));
    let unit = slice.page_size.unwrap_or(PageSize::SMALL).bytes();
    let cell = |(node, pages): &(u32, u64)| {
        let cpus = processors.all(*node);
        let vcpus = (0u32..).zip(&slice.cpus).filter(|(_, cpu)| cpus.contains(**cpu)).map(|(vcpu, _)| vcpu);
        GuestCell {
            vcpus: vcpus.collect::<CpuSet>(),
            memory: unit.times(*pages),
            node: *node,
            distances: nodes.iter().filter(|_| told).map(|other| distances.between(*node, *other)).collect(),
        }
    };
    slice.memory.iter().map(cell).collect()
}
