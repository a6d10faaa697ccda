//! PUs for the vCPUs of each node, after nodes are chosen. What isolates and what requires whole cores comes first, so
//! that the counts the nodes were chosen by always suffice.

use std::collections::BTreeMap;

use crate::dense::{MILLI, milli};
use crate::model::{CoreSupply, CpuSharing, NodeSupply, SmtPolicy};

/// vCPUs of one VM on a node.
#[derive(Debug, Clone)]
pub(crate) struct Guest {
    pub(crate) vm: usize,
    pub(crate) vcpus: u32,
    pub(crate) smt: SmtPolicy,
    pub(crate) sharing: CpuSharing,
    /// The fastest cores are for it.
    pub(crate) fast: bool,
    /// PUs it runs on already and keeps.
    pub(crate) held: Option<Pins>,
}

/// PUs of one VM on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pins {
    pub(crate) pus: Vec<u32>,
    pub(crate) idle: Vec<u32>,
}

/// What became of a node.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    pub(crate) guests: BTreeMap<usize, Pins>,
    /// VMs on cores of several kinds.
    pub(crate) mixed: u64,
    /// Cores two or more VMs share.
    pub(crate) shared_cores: u64,
    /// L3 domains beyond the fewest.
    pub(crate) extra_l3: u64,
    pub(crate) free_pus: u32,
    pub(crate) free_cores: u32,
    pub(crate) largest_l3: u32,
}

struct Core<'a> {
    supply: &'a CoreSupply,
    /// PUs nobody held at the start.
    free: Vec<u32>,
    /// PUs given away, from the front of `free`.
    taken: usize,
    owners: Vec<usize>,
}

impl<'a> Core<'a> {
    fn new(supply: &'a CoreSupply, guests: &[Guest]) -> Self {
        let mut owners = Vec::new();
        let mut free = supply.free.clone();
        for guest in guests {
            let Some(held) = &guest.held else { continue };
            let before = free.len();
            free.retain(|pu| !held.pus.contains(pu) && !held.idle.contains(pu));
            if free.len() < before {
                owners.push(guest.vm);
            }
        }
        Self { supply, free, taken: 0, owners }
    }

    fn left(&self) -> usize {
        self.free.len() - self.taken
    }

    fn is_whole(&self) -> bool {
        self.taken == 0 && self.free.len() as u32 == self.supply.threads
    }

    fn is_of(&self, kind: Option<u32>) -> bool {
        kind.is_none_or(|kind| self.supply.kind == kind)
    }

    fn take(&mut self, vm: usize, count: usize, pus: &mut Vec<u32>) -> usize {
        let count = count.min(self.left());
        pus.extend(&self.free[self.taken..self.taken + count]);
        self.taken += count;
        if count > 0 && !self.owners.contains(&vm) {
            self.owners.push(vm);
        }
        count
    }
}

/// In what order VMs that ask for the same of cores get theirs, and from where what fills no core comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    smallest_first: bool,
    /// A core of its own while there are whole ones, rather than one another VM is on.
    own_core: bool,
    /// Cores of one kind for each VM, as far as one has enough.
    by_kind: bool,
}

/// Gives PUs of a node to VMs. On a node with several kinds of cores each VM gets one kind where that leaves nobody
/// short: what isolates takes large cores then though it would do with small ones.
pub(crate) fn pin(node: &NodeSupply, guests: &[Guest]) -> Pinned {
    if node.cores.iter().any(|core| core.kind != node.cores[0].kind) {
        let by_kind = best_of(node, guests, true);
        if is_enough(&by_kind, guests) {
            return by_kind;
        }
    }
    best_of(node, guests, false)
}

/// The first way leaves the most cores whole; where VMs share cores for it or are on more L3 domains than they need,
/// others are tried, and the best is kept.
fn best_of(node: &NodeSupply, guests: &[Guest], by_kind: bool) -> Pinned {
    let value = |pinned: &Pinned| (pinned.mixed, pinned.shared_cores, pinned.extra_l3);
    let mut best = pin_by(node, guests, Way { smallest_first: false, own_core: false, by_kind });
    for (smallest_first, own_core) in [(false, true), (true, true), (true, false)] {
        if value(&best) == (0, 0, 0) {
            break;
        }
        let other = pin_by(node, guests, Way { smallest_first, own_core, by_kind });
        let enough = !by_kind || is_enough(&other, guests);
        if enough && (value(&other) < value(&best) || (by_kind && !is_enough(&best, guests))) {
            best = other;
        }
    }
    best
}

/// Whether everybody has a PU for each vCPU, and those who share have what they need.
pub(crate) fn is_enough(pinned: &Pinned, guests: &[Guest]) -> bool {
    let mut load = 0;
    for guest in guests {
        match guest.sharing {
            CpuSharing::Shared { ratio_percent } => load += milli(guest.vcpus, ratio_percent),
            CpuSharing::Dedicated => {
                if pinned.guests.get(&guest.vm).is_none_or(|pins| pins.pus.len() != guest.vcpus as usize) {
                    return false;
                }
            }
        }
    }
    load <= u64::from(pinned.free_pus) * MILLI
}

/// The fastest kind of core of which there are enough for a VM.
fn kind_for(cores: &[Core<'_>], guest: &Guest, threads: usize) -> Option<u32> {
    let mut room: BTreeMap<u32, usize> = BTreeMap::new();
    for core in cores {
        let full = core.is_whole() && core.supply.threads as usize == threads;
        *room.entry(core.supply.kind).or_default() += match guest.smt {
            SmtPolicy::Isolate => usize::from(core.is_whole()),
            SmtPolicy::Require => usize::from(full) * threads,
            SmtPolicy::Prefer | SmtPolicy::None => core.left(),
        };
    }
    room.into_iter().find(|(_, room)| *room >= guest.vcpus as usize).map(|(kind, _)| kind)
}

fn pin_by(node: &NodeSupply, guests: &[Guest], way: Way) -> Pinned {
    let mut cores: Vec<Core<'_>> = node.cores.iter().map(|supply| Core::new(supply, guests)).collect();
    let threads = node.cores.iter().map(|core| core.threads).max().unwrap_or(1).max(1) as usize;
    let mut order: Vec<&Guest> = guests.iter().filter(|guest| guest.sharing == CpuSharing::Dedicated).collect();
    let rank = |smt: SmtPolicy| match smt {
        SmtPolicy::Isolate => 0,
        SmtPolicy::Require => 1,
        SmtPolicy::Prefer => 2,
        SmtPolicy::None => 3,
    };
    let size = |guest: &Guest| if way.smallest_first { guest.vcpus } else { u32::MAX - guest.vcpus };
    let slow = |guest: &Guest| way.by_kind && !guest.fast;
    order.sort_by_key(|guest| (rank(guest.smt), slow(guest), size(guest), guest.vm));
    let mut pinned = Pinned::default();
    for guest in order {
        let kind = if way.by_kind { kind_for(&cores, guest, threads) } else { None };
        let pins = match (&guest.held, guest.smt) {
            (Some(held), _) => held.clone(),
            (None, SmtPolicy::Isolate) => isolate(&mut cores, guest, threads, kind),
            _ => take(&mut cores, guest, threads, way.own_core && guest.smt == SmtPolicy::Prefer, kind),
        };
        pinned.extra_l3 += extra_l3(node, &pins, guest, threads);
        let of = |pu: &u32| node.cores.iter().find(|core| core.free.contains(pu)).map(|core| core.kind);
        pinned.mixed += u64::from(way.by_kind && pins.pus.iter().any(|pu| of(pu) != of(&pins.pus[0])));
        pinned.guests.insert(guest.vm, pins);
    }
    pinned.shared_cores = cores.iter().filter(|core| core.owners.len() > 1).count() as u64;
    let mut by_l3: BTreeMap<u32, u32> = BTreeMap::new();
    for core in &cores {
        *by_l3.entry(core.supply.l3).or_default() += core.left() as u32;
        pinned.free_cores += u32::from(core.is_whole());
    }
    pinned.free_pus = by_l3.values().sum();
    pinned.largest_l3 = by_l3.values().copied().max().unwrap_or(0);
    pinned
}

/// One vCPU a core. Cores of one PU come first where the node has larger ones.
fn isolate(cores: &mut [Core<'_>], guest: &Guest, threads: usize, kind: Option<u32>) -> Pins {
    let mut pins = Pins::default();
    let mut left = guest.vcpus as usize;
    for single in [true, false] {
        while left > 0 {
            let suits = |core: &Core<'_>| {
                core.is_of(kind)
                    && core.is_whole()
                    && (core.supply.threads as usize == if single && threads > 1 { 1 } else { threads })
            };
            let Some(l3) = best_l3(cores, left, |core| if suits(core) { 1 } else { 0 }) else { break };
            let chosen = cores.iter_mut().filter(|core| core.supply.l3 == l3);
            for core in chosen {
                if left > 0 && suits(core) {
                    let mut all = Vec::new();
                    core.take(guest.vm, threads, &mut all);
                    pins.pus.extend(all.first());
                    pins.idle.extend(all.iter().skip(1));
                    left -= 1;
                }
            }
        }
    }
    pins
}

/// Whole cores first, those of one L3 domain if it has enough; what is left over goes to cores used in part.
fn take(cores: &mut [Core<'_>], guest: &Guest, threads: usize, own_core: bool, kind: Option<u32>) -> Pins {
    let mut pins = Pins::default();
    let mut left = guest.vcpus as usize;
    let full = |core: &Core<'_>| core.is_of(kind) && core.is_whole() && core.supply.threads as usize == threads;
    if guest.smt != SmtPolicy::None || threads == 1 {
        // Only as many as it fills; one that requires siblings takes its last core from a whole one too.
        let mut whole =
            if guest.smt == SmtPolicy::Require || own_core { left.div_ceil(threads) } else { left / threads };
        while whole > 0 {
            let Some(l3) = best_l3(cores, whole, |core| usize::from(full(core))) else { break };
            for core in cores.iter_mut().filter(|core| core.supply.l3 == l3) {
                if whole > 0 && full(core) {
                    left -= core.take(guest.vm, left.min(threads), &mut pins.pus);
                    whole -= 1;
                }
            }
        }
    }
    // Cores used in part, then small ones, then whole ones; those next to what it has before others.
    for step in 0..3 {
        if left == 0 {
            break;
        }
        let homes: Vec<u32> =
            cores.iter().filter(|core| core.owners.contains(&guest.vm)).map(|core| core.supply.l3).collect();
        let mut order: Vec<usize> = (0..cores.len())
            .filter(|at| {
                let core = &cores[*at];
                core.left() > 0
                    && core.is_of(kind)
                    && match step {
                        0 => !core.is_whole(),
                        1 => !full(core),
                        _ => true,
                    }
            })
            .collect();
        order.sort_by_key(|at| (!homes.contains(&cores[*at].supply.l3), cores[*at].left() > left, *at));
        for at in order {
            left -= cores[at].take(guest.vm, left, &mut pins.pus);
        }
    }
    pins
}

/// The L3 domain with the fewest suitable cores that are enough; or else with the most. `None` if none has any.
fn best_l3(cores: &[Core<'_>], wanted: usize, weight: impl Fn(&Core<'_>) -> usize) -> Option<u32> {
    let mut count: BTreeMap<u32, usize> = BTreeMap::new();
    for core in cores {
        *count.entry(core.supply.l3).or_default() += weight(core);
    }
    let some = count.into_iter().filter(|(_, count)| *count > 0);
    let best =
        some.min_by_key(|(l3, count)| if *count >= wanted { (0, *count, *l3) } else { (1, usize::MAX - *count, *l3) });
    best.map(|(l3, _)| l3)
}

/// L3 domains used beyond the fewest that could hold so many vCPUs on this node, empty.
fn extra_l3(node: &NodeSupply, pins: &Pins, guest: &Guest, threads: usize) -> u64 {
    let mut size: BTreeMap<u32, usize> = BTreeMap::new();
    let mut used: BTreeMap<u32, bool> = BTreeMap::new();
    for core in &node.cores {
        let per_core = match guest.smt {
            SmtPolicy::Isolate => usize::from(core.free.len() as u32 == core.threads),
            SmtPolicy::Require if (core.threads as usize) < threads => 0,
            _ => core.free.len(),
        };
        *size.entry(core.l3).or_default() += per_core;
        if core.free.iter().any(|pu| pins.pus.contains(pu)) {
            used.insert(core.l3, true);
        }
    }
    let mut sizes: Vec<usize> = size.into_values().collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let (mut fewest, mut reached) = (0, 0);
    for size in sizes {
        if reached >= guest.vcpus as usize {
            break;
        }
        reached += size;
        fewest += 1;
    }
    (used.len() as u64).saturating_sub(fewest)
}
