//! What nobody could beat on servers of two nodes: the Lagrangian bound over ways to fill a server.
//!
//! Groups are left out but for those too large for any host, and so is the order of arrival: each server alone is filled in the best way under prices of the
//! requests' kinds, by dynamic programming over vCPUs and memory, and the prices are moved until the sum is least. Any
//! prices give a bound that is never wrong; good ones give that of the linear relaxation over all ways to fill a server
//! (Gilmore and Gomory 1961), which no relaxation by sums of resources reaches.

use std::collections::BTreeMap;

use nearmetal_fleet::{Fleet, GuestNuma, Scope, Together};

/// Moves of the prices; each is a pass over the servers.
const ROUNDS: usize = 1200;
/// The first move, in parts of the price range, and what is left of it where a while brought nothing.
const FIRST_MOVE: f64 = 1.0;
const WHILE: usize = 30;
const LESS: f64 = 0.7;

/// Whether a VM has two cells; vCPUs and MiB of a cell.
type KindKey = (bool, u64, u64);

/// Units of PUs and of memory a set takes of each node, and how many of each kind are in it.
type Set = (usize, usize, Vec<(usize, f64)>);

/// VMs that ask for the same.
struct Kind {
    pairs: bool,
    /// Of each cell, in the units of the table.
    vcpus: usize,
    memory: usize,
    /// vCPUs of the VM.
    worth: f64,
    count: f64,
}

/// Servers alike: two nodes' vCPUs and memory in units.
struct Servers {
    nodes: [(usize, usize); 2],
    count: f64,
}

pub(crate) struct Ceiling {
    kinds: Vec<Kind>,
    servers: Vec<Servers>,
    /// Sets of VMs of two cells: what they take of each node, and how many of each kind.
    pairs: Vec<Set>,
    /// Width and height of the table.
    most: (usize, usize),
}

impl Ceiling {
    /// `None` for servers without two nodes, VMs of more cells, or numbers without a common unit.
    pub(crate) fn of(fleet: &Fleet) -> Option<Self> {
        let mut kinds: BTreeMap<KindKey, u64> = BTreeMap::new();
        let mut together: BTreeMap<(&str, KindKey), u64> = BTreeMap::new();
        for vm in &fleet.vms {
            let cells = if let GuestNuma::Cells(cells) = vm.numa { u64::from(cells) } else { 1 };
            let (vcpus, mib) = (u64::from(vm.vcpus), vm.memory.get() >> 20);
            if cells > 2 || vcpus % cells != 0 || mib % cells != 0 {
                return None;
            }
            let kind = (cells == 2, vcpus / cells, mib / cells);
            let group = vm.groups.iter().find(|group| group.rule == Together::Together && group.scope == Scope::Host);
            match group {
                Some(group) => *together.entry((&group.group, kind)).or_default() += 1,
                None => *kinds.entry(kind).or_default() += 1,
            }
        }
        // Of a group that must share a host no more count than the roomiest host could hold of the kind alone.
        for ((_, kind), count) in together {
            *kinds.entry(kind).or_default() += count.min(most_alone(fleet, kind));
        }
        let common = |pick: fn(&KindKey) -> u64| kinds.keys().map(pick).fold(0, divisor).max(1);
        let (pu, mib) = (common(|kind| kind.1), common(|kind| kind.2));
        let mut servers: BTreeMap<[(usize, usize); 2], u64> = BTreeMap::new();
        for host in &fleet.hosts {
            let of = |node: &nearmetal_fleet::NodeSupply| {
                let pus: usize = node.cores.iter().map(|core| core.free.len()).sum();
                (pus / pu as usize, ((node.memory.get() >> 20) / mib) as usize)
            };
            let [one, other] = &host.nodes[..] else { return None };
            let (one, other) = (of(one), of(other));
            *servers.entry([one.min(other), one.max(other)]).or_default() += 1;
        }
        let nodes = || servers.keys().flatten();
        let most = (nodes().map(|node| node.0).max()?, nodes().map(|node| node.1).max()?);
        let kinds: Vec<Kind> = kinds
            .into_iter()
            .map(|((pairs, vcpus, memory), count)| Kind {
                pairs,
                vcpus: (vcpus / pu) as usize,
                memory: (memory / mib) as usize,
                worth: vcpus as f64 * if pairs { 2.0 } else { 1.0 },
                count: count as f64,
            })
            .collect();
        let servers = servers.into_iter().map(|(nodes, count)| Servers { nodes, count: count as f64 }).collect();
        let pairs = sets(&kinds, most);
        Some(Self { kinds, servers, pairs, most })
    }

    /// vCPUs at most.
    pub(crate) fn vcpus(&self) -> f64 {
        let all: f64 = self.kinds.iter().map(|kind| kind.worth * kind.count).sum();
        let bound = self.descend(|prices| {
            let values: Vec<f64> =
                self.kinds.iter().zip(prices).map(|(kind, price)| kind.worth * (1.0 - price)).collect();
            let (filled, taken) = self.fill(&values);
            let base: f64 = self.kinds.iter().zip(prices).map(|(kind, price)| kind.worth * kind.count * price).sum();
            // More taken than asked for: the price rises.
            let slope = self.kinds.iter().zip(&taken).map(|(kind, taken)| kind.worth * (kind.count - taken)).collect();
            (base + filled, slope)
        });
        bound.min(all)
    }

    /// The least of a convex function of prices, each 0 at least, as far as the rounds bring it.
    fn descend(&self, value: impl Fn(&[f64]) -> (f64, Vec<f64>)) -> f64 {
        let mut prices = vec![0.0; self.kinds.len()];
        let (mut best, mut kept, mut idle, mut step) = (f64::INFINITY, prices.clone(), 0, FIRST_MOVE);
        for _ in 0..ROUNDS {
            let (now, slope) = value(&prices);
            if now < best - 1e-9 {
                (best, kept, idle) = (now, prices.clone(), 0);
            } else {
                idle += 1;
                if idle == WHILE {
                    (step, idle) = (step * LESS, 0);
                    prices.clone_from(&kept);
                    continue;
                }
            }
            let length = slope.iter().map(|part| part * part).sum::<f64>().sqrt();
            if length < 1e-12 {
                break;
            }
            for (price, part) in prices.iter_mut().zip(&slope) {
                *price = (*price - step * 0.2 * part / length).max(0.0);
            }
        }
        best
    }

    /// The best of all servers under values of the kinds, and what of each kind is
    /// taken then.
    fn fill(&self, values: &[f64]) -> (f64, Vec<f64>) {
        let width = self.most.1 + 1;
        let mut table = vec![(0.0f64, usize::MAX); (self.most.0 + 1) * width];
        let singles: Vec<usize> = (0..values.len()).filter(|at| !self.kinds[*at].pairs && values[*at] > 0.0).collect();
        for pus in 0..=self.most.0 {
            for memory in 0..=self.most.1 {
                let mut best = (0.0, usize::MAX);
                for &at in &singles {
                    let kind = &self.kinds[at];
                    if kind.vcpus <= pus && kind.memory <= memory {
                        let value = values[at] + table[(pus - kind.vcpus) * width + memory - kind.memory].0;
                        if value > best.0 {
                            best = (value, at);
                        }
                    }
                }
                table[pus * width + memory] = best;
            }
        }
        let worth: Vec<f64> =
            self.pairs.iter().map(|(_, _, set)| set.iter().map(|(at, count)| values[*at] * count).sum()).collect();
        let (mut sum, mut taken) = (0.0, vec![0.0; values.len()]);
        for servers in &self.servers {
            let [one, other] = servers.nodes;
            let mut best = (0.0, usize::MAX);
            for (index, (pus, memory, _)) in self.pairs.iter().enumerate() {
                let least = (one.0.min(other.0), one.1.min(other.1));
                if *pus <= least.0 && *memory <= least.1 {
                    let rest = |node: (usize, usize)| table[(node.0 - pus) * width + node.1 - memory].0;
                    let value = worth[index] + rest(one) + rest(other);
                    if value > best.0 {
                        best = (value, index);
                    }
                }
            }
            if best.1 == usize::MAX {
                continue;
            }
            sum += servers.count * best.0;
            let (pus, memory, set) = &self.pairs[best.1];
            set.iter().for_each(|(at, count)| taken[*at] += count * servers.count);
            for node in [one, other] {
                let (mut pus, mut memory) = (node.0 - pus, node.1 - memory);
                while table[pus * width + memory].1 != usize::MAX {
                    let at = table[pus * width + memory].1;
                    taken[at] += servers.count;
                    (pus, memory) = (pus - self.kinds[at].vcpus, memory - self.kinds[at].memory);
                }
            }
        }
        (sum, taken)
    }
}

/// All sets of VMs of two cells that a node of this size could hold.
fn sets(kinds: &[Kind], most: (usize, usize)) -> Vec<Set> {
    let mut sets = vec![(0, 0, Vec::new())];
    for (at, kind) in kinds.iter().enumerate().filter(|(_, kind)| kind.pairs) {
        for (pus, memory, set) in sets.clone() {
            for count in 1.. {
                let (pus, memory) = (pus + count * kind.vcpus, memory + count * kind.memory);
                if pus > most.0 || memory > most.1 {
                    break;
                }
                let mut more: Vec<(usize, f64)> = set.clone();
                more.push((at, count as f64));
                sets.push((pus, memory, more));
            }
        }
    }
    sets
}

/// The most VMs of a kind that one host holds if it holds nothing else.
fn most_alone(fleet: &Fleet, (pair, vcpus, mib): KindKey) -> u64 {
    let of_host = |host: &nearmetal_fleet::FleetHost| {
        let of_node = |node: &nearmetal_fleet::NodeSupply| {
            let pus: u64 = node.cores.iter().map(|core| core.free.len() as u64).sum();
            (pus / vcpus).min((node.memory.get() >> 20) / mib)
        };
        let nodes = host.nodes.iter().map(of_node);
        if pair { nodes.min().unwrap_or(0) } else { nodes.sum() }
    };
    fleet.hosts.iter().map(of_host).max().unwrap_or(0)
}

fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { divisor(other, one % other) }
}
