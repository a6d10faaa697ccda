//! PUs by node and core, and which of them are free.

use std::collections::BTreeMap;

use nearmetal_host::Host;
use nearmetal_units::CpuSet;

use crate::occupied::Occupied;
use crate::policy::{Allowed, Housekeeping, Policy, Siblings};

/// What a PU may be taken from to place vCPUs; each level adds to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// PUs nobody uses.
    Free,
    /// And the host's own core.
    Housekeeping,
    /// And PUs that emulator threads or iothreads of other guests are pinned to.
    Helpers,
}

impl Level {
    pub(crate) const ALL: [Self; 3] = [Self::Free, Self::Housekeeping, Self::Helpers];
}

/// One core of a node.
#[derive(Debug, Clone)]
pub(crate) struct NodeCore {
    /// Its online PUs, rising.
    pub(crate) cpus: Vec<u32>,
    /// The lowest PU of its last-level cache: cores with the same number share one.
    pub(crate) cache: u32,
}

/// Who uses which PU.
#[derive(Debug, Clone)]
pub(crate) struct Processors {
    /// Cores by node.
    nodes: BTreeMap<u32, Vec<NodeCore>>,
    /// PUs of vCPUs, of other guests and of the plan.
    pub(crate) vcpus: CpuSet,
    /// PUs of emulator threads and iothreads, of other guests and of the plan.
    pub(crate) helpers: CpuSet,
    /// The host's own core.
    pub(crate) housekeeping: CpuSet,
    /// PUs whose core belongs to a vCPU of the plan that has it for itself: nobody's.
    pub(crate) idle: CpuSet,
    keep_housekeeping: bool,
    allowed: Allowed,
}

impl Processors {
    /// Cores as the kernel gives them; a PU it gives no core for is one of its own.
    pub(crate) fn new(host: &Host, occupied: &Occupied, policy: &Policy) -> Self {
        let online = host.online();
        let nodes =
            host.nodes.iter().map(|node| (node.index, cores_of(host, &node.cpus.intersection(&online)))).collect();
        let first = online.first();
        let core_of_first = host.cores.iter().find(|core| first.is_some_and(|first| core.cpus.contains(first)));
        let housekeeping = match (policy.housekeeping, core_of_first) {
            (Housekeeping::Share, _) => CpuSet::new(),
            (_, Some(core)) => core.cpus.intersection(&online),
            (_, None) => first.into_iter().collect(),
        };
        Self {
            nodes,
            vcpus: occupied.vcpus(),
            helpers: occupied.helpers(),
            housekeeping,
            idle: CpuSet::new(),
            keep_housekeeping: policy.housekeeping == Housekeeping::Keep,
            allowed: policy.allowed.clone(),
        }
    }

    /// Nodes by number.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.keys().copied()
    }

    /// Cores of a node.
    pub(crate) fn cores(&self, node: u32) -> &[NodeCore] {
        self.nodes.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Whether any thread of the plan may run on that PU.
    pub(crate) fn is_allowed(&self, cpu: u32) -> bool {
        self.allowed.has_cpu(cpu)
    }

    /// The PUs allowed, where not all are.
    pub(crate) fn allowed(&self) -> Option<&CpuSet> {
        self.allowed.cpus.as_ref()
    }

    /// Whether a vCPU may be placed on that PU.
    pub(crate) fn is_free(&self, cpu: u32, level: Level) -> bool {
        self.is_allowed(cpu)
            && !self.vcpus.contains(cpu)
            && !self.idle.contains(cpu)
            && (level >= Level::Helpers || !self.helpers.contains(cpu))
            && (!self.housekeeping.contains(cpu) || (level >= Level::Housekeeping && !self.keep_housekeeping))
    }

    /// PUs of a node that are free at that level.
    pub(crate) fn free(&self, node: u32, level: Level) -> CpuSet {
        self.all(node).iter().filter(|cpu| self.is_free(*cpu, level)).collect()
    }

    /// vCPUs that a node has room for at that level.
    pub(crate) fn room(&self, node: u32, level: Level, siblings: Siblings) -> usize {
        match siblings {
            Siblings::Use => self.free(node, level).len(),
            Siblings::Spare => self.whole_cores(node, level).count(),
        }
    }

    fn whole_cores(&self, node: u32, level: Level) -> impl Iterator<Item = &NodeCore> {
        self.cores(node).iter().filter(move |core| core.cpus.iter().all(|cpu| self.is_free(*cpu, level)))
    }

    /// The other PUs of the cores that these are of.
    pub(crate) fn siblings(&self, cpus: &[u32]) -> CpuSet {
        let cores = self.nodes.values().flatten().filter(|core| core.cpus.iter().any(|cpu| cpus.contains(cpu)));
        cores.flat_map(|core| core.cpus.iter().copied()).filter(|cpu| !cpus.contains(cpu)).collect()
    }

    /// All PUs of a node.
    pub(crate) fn all(&self, node: u32) -> CpuSet {
        self.cores(node).iter().flat_map(|core| core.cpus.iter().copied()).collect()
    }

    /// PUs of a core of a node.
    pub(crate) fn threads(&self, node: u32) -> u32 {
        self.cores(node).iter().map(|core| core.cpus.len() as u32).max().unwrap_or(1).max(1)
    }

    /// The first PU of each of the node's cores.
    pub(crate) fn first_of_cores(&self, node: u32) -> CpuSet {
        self.cores(node).iter().filter_map(|core| core.cpus.first().copied()).collect()
    }

    /// PUs of a node that are free, without those of cores somebody else uses a part of.
    pub(crate) fn free_in_whole_cores(&self, node: u32, level: Level) -> usize {
        self.whole_cores(node, level).map(|core| core.cpus.len()).sum()
    }

    /// PUs for `count` vCPUs of one guest on one node, neighbours in the list being siblings, and how many of them are
    /// on cores that somebody else uses too. Fewer PUs than asked if there are not more.
    ///
    /// Whole cores come first. They are taken from one last-level cache if one has enough, the smallest that does. Where siblings
    /// are spared there are no others, and each gives its first PU.
    pub(crate) fn choose(&self, node: u32, level: Level, siblings: Siblings, count: usize) -> (Vec<u32>, usize) {
        let given = |core: &NodeCore| match siblings {
            Siblings::Use => core.cpus.len(),
            Siblings::Spare => 1,
        };
        let mut whole: Vec<&NodeCore> = Vec::new();
        let mut partial: Vec<u32> = Vec::new();
        for core in self.cores(node) {
            let free: Vec<u32> = core.cpus.iter().copied().filter(|cpu| self.is_free(*cpu, level)).collect();
            if free.len() == core.cpus.len() {
                whole.push(core);
            } else if siblings == Siblings::Use {
                partial.extend(free);
            }
        }
        let size_of =
            |cache: u32| whole.iter().filter(|core| core.cache == cache).map(|core| given(core)).sum::<usize>();
        let mut ordered = whole.clone();
        // A cache that holds the guest: the smallest such. None does: the largest first, to touch few.
        ordered.sort_by_cached_key(|core| {
            let size = size_of(core.cache);
            let rank = if size >= count { (0, size) } else { (1, usize::MAX - size) };
            (rank, core.cache, core.cpus.first().copied())
        });
        let cpus = ordered.iter().flat_map(|core| core.cpus.iter().copied().take(given(core)));
        let mut chosen: Vec<u32> = cpus.take(count).collect();
        let shared = count.saturating_sub(chosen.len()).min(partial.len());
        chosen.extend(partial.into_iter().take(shared));
        (chosen, shared)
    }
}

fn cores_of(host: &Host, cpus: &CpuSet) -> Vec<NodeCore> {
    let cache_of = |cpu: u32| {
        let shared = host.processor(cpu).and_then(|processor| processor.last_level_cache.as_ref());
        // A core whose cache is not known shares it with the node.
        shared.and_then(CpuSet::first).or(cpus.first()).unwrap_or(cpu)
    };
    let mut left = cpus.clone();
    let mut cores = Vec::new();
    for cpu in cpus.iter() {
        if !left.contains(cpu) {
            continue;
        }
        let core = host.cores.iter().find(|core| core.cpus.contains(cpu)).map(|core| core.cpus.intersection(&left));
        let members = core.unwrap_or_else(|| CpuSet::one(cpu));
        left = left.difference(&members);
        cores.push(NodeCore { cpus: members.iter().collect(), cache: cache_of(cpu) });
    }
    cores
}
