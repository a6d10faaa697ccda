//! Where emulator thread and iothreads run: off the vCPUs' PUs, near the guest.

use nearmetal_units::CpuSet;

use crate::distances::Distances;
use crate::processors::Processors;
use crate::slice::Slice;

/// What was found for the helper threads of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Helpers {
    pub(crate) emulator: CpuSet,
    pub(crate) iothreads: Vec<CpuSet>,
    pub(crate) found: Found,
}

impl Helpers {
    /// Whether each of these threads has a PU that no other thread of any guest has.
    pub(crate) fn are_apart(&self) -> bool {
        if matches!(self.found, Found::SharedWithHelpers(_) | Found::SharedWithVcpus) {
            return false;
        }
        let all = self.iothreads.iter().fold(self.emulator.clone(), |all, own| all.union(own));
        all.len() == self.emulator.len() + self.iothreads.iter().map(CpuSet::len).sum::<usize>()
    }
}

/// How good the place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Free PUs on a node of the guest.
    Near(u32),
    /// Free PUs on the nearest node that has any, at that distance.
    Away { node: u32, distance: u32 },
    /// No PU is free; siblings of vCPUs' PUs that were to stay idle on that node.
    Idle(u32),
    /// No PU is free; those of other guests' helper threads on that node are shared.
    SharedWithHelpers(u32),
    /// Every PU carries a vCPU: the host's own core is shared with whoever runs there.
    SharedWithVcpus,
}

/// Finds PUs for the emulator thread and `iothreads` iothreads. To be called when the vCPUs of all guests are placed.
pub(crate) fn find(distances: &Distances, processors: &Processors, slice: &Slice, iothreads: usize) -> Helpers {
    let own = &slice.cpu_nodes;
    let home = own.first().copied().unwrap_or_default();
    let others = distances.around(home).filter(|node| !own.contains(node));
    let order: Vec<u32> = own.iter().copied().chain(others).collect();

    let free = order.iter().map(|node| (*node, ranked(processors, slice, *node))).find(|(_, cpus)| !cpus.is_empty());
    if let Some((node, cpus)) = free {
        let found = match own.contains(&node) {
            true => Found::Near(node),
            false => Found::Away { node, distance: distances.between(home, node) },
        };
        return deal(&cpus, iothreads, found);
    }
    // A sibling that was to stay idle is better than a PU that somebody has.
    let idle = |node: u32| -> Vec<u32> {
        let idle = processors.all(node).intersection(&processors.idle);
        idle.iter().filter(|cpu| processors.is_allowed(*cpu)).collect()
    };
    if let Some((node, cpus)) = order.iter().map(|node| (*node, idle(*node))).find(|(_, cpus)| !cpus.is_empty()) {
        return deal(&cpus, iothreads, Found::Idle(node));
    }
    let helping = |node: u32| -> Vec<u32> {
        let cpus = processors.cores(node).iter().flat_map(|core| core.cpus.iter().copied());
        let helping = cpus.filter(|cpu| processors.helpers.contains(*cpu) && !processors.vcpus.contains(*cpu));
        helping.filter(|cpu| processors.is_allowed(*cpu)).collect()
    };
    if let Some((node, cpus)) = order.iter().map(|node| (*node, helping(*node))).find(|(_, cpus)| !cpus.is_empty()) {
        return deal(&cpus, iothreads, Found::SharedWithHelpers(node));
    }
    // Even where the policy keeps no core for the host, the lowest PU is where its own work runs first.
    let lowest = || {
        let cpus = order.iter().flat_map(|node| processors.cores(*node)).flat_map(|core| core.cpus.iter().copied());
        cpus.filter(|cpu| processors.is_allowed(*cpu)).min()
    };
    let housekeeping: CpuSet = processors.housekeeping.iter().filter(|cpu| processors.is_allowed(*cpu)).collect();
    let host_core = if housekeeping.is_empty() { lowest().into_iter().collect() } else { housekeeping };
    Helpers { emulator: host_core.clone(), iothreads: vec![host_core; iothreads], found: Found::SharedWithVcpus }
}

/// Up to `count` PUs for nothing but vhost workers: on the guest's own nodes, where its memory is, and free.
pub(crate) fn spare(processors: &Processors, slice: &Slice, count: usize) -> Vec<u32> {
    let free = slice.cpu_nodes.iter().flat_map(|node| ranked(processors, slice, *node));
    free.filter(|cpu| !processors.housekeeping.contains(*cpu)).take(count).collect()
}

/// PUs of a node nobody uses, best first: beside the guest's own vCPUs, beside other helpers, on cores nobody uses,
/// beside other guests' vCPUs, on the host's core.
fn ranked(processors: &Processors, slice: &Slice, node: u32) -> Vec<u32> {
    let mut cpus: Vec<(u32, u32)> = Vec::new();
    for core in processors.cores(node) {
        let vcpus: Vec<u32> = core.cpus.iter().copied().filter(|cpu| processors.vcpus.contains(*cpu)).collect();
        let has_helper = core.cpus.iter().any(|cpu| processors.helpers.contains(*cpu));
        for cpu in core.cpus.iter().copied() {
            let is_used = processors.vcpus.contains(cpu) || processors.helpers.contains(cpu);
            if is_used || processors.idle.contains(cpu) || !processors.is_allowed(cpu) {
                continue;
            }
            let rank = if processors.housekeeping.contains(cpu) {
                4
            } else if !vcpus.is_empty() && vcpus.iter().all(|own| slice.cpus.contains(own)) {
                0
            } else if !vcpus.is_empty() {
                3
            } else if has_helper {
                1
            } else {
                2
            };
            cpus.push((rank, cpu));
        }
    }
    // Stable: PUs of one core stay together.
    cpus.sort_by_key(|(rank, _)| *rank);
    cpus.into_iter().map(|(_, cpu)| cpu).collect()
}

/// The emulator thread gets the first PU, iothreads the next ones in turn; with a single PU all share it.
fn deal(cpus: &[u32], iothreads: usize, found: Found) -> Helpers {
    let (first, others) = (cpus[0], &cpus[1..]);
    let for_iothreads = if others.is_empty() { &cpus[..1] } else { others };
    let iothreads = for_iothreads.iter().cycle().take(iothreads).map(|cpu| CpuSet::one(*cpu)).collect();
    Helpers { emulator: CpuSet::one(first), iothreads, found }
}
