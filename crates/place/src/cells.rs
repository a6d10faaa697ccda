//! Cells of a guest that lies on several nodes: the nodes as it sees them.

use nearmetal_units::{Bytes, CpuSet};

use crate::distances::Distances;
use crate::memory::Share;
use crate::plan::GuestCell;
use crate::processors::Processors;
use crate::request::GuestRequest;
use crate::slice::Slice;

/// A cell for each node of the guest, in the order of its vCPUs. None for a guest on one node, and where a node gives vCPUs without
/// memory or memory without vCPUs: a guest shown that would keep off the one or crowd on the other.
pub(crate) fn of(
    distances: &Distances,
    processors: &Processors,
    guest: &GuestRequest,
    slice: &Slice,
) -> Vec<GuestCell> {
    let nodes = &slice.cpu_nodes;
    let share = |node: u32| slice.memory.iter().find(|(own, pages)| *own == node && *pages > 0);
    let shares: Option<Vec<&Share>> = nodes.iter().map(|node| share(*node)).collect();
    let Some(shares) = shares.filter(|shares| nodes.len() > 1 && shares.len() == slice.memory.len()) else {
        return Vec::new();
    };
    let unit = slice.page_size.unwrap_or(nearmetal_units::PageSize::SMALL).bytes();
    let mut left = guest.memory;
    let cell = |(node, (_, pages)): (&u32, &Share)| {
        // The last page may be more than the guest has memory for.
        let memory: Bytes = unit.times(*pages).min(left);
        left = left.less(memory);
        let own = |cpu: u32| processors.cores(*node).iter().any(|core| core.cpus.contains(&cpu));
        let vcpus = (0u32..).zip(&slice.cpus).filter(|(_, cpu)| own(**cpu)).map(|(vcpu, _)| vcpu);
        GuestCell {
            vcpus: vcpus.collect::<CpuSet>(),
            memory,
            node: *node,
            distances: nodes.iter().map(|other| distances.between(*node, *other)).collect(),
        }
    };
    nodes.iter().zip(shares).map(cell).collect()
}
