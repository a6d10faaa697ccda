//! Who is where, and what it is worth: changed in place, one VM at a time.

use super::node::NodeUse;
use super::problem::{PRIORITIES, Problem};
use super::shape::{Cells, Shape};
use crate::model::{Locality, SpreadHosts};

/// Levels the search compares; smaller is better, the first difference decides. Sums over VMs, hosts and nodes, so that
/// a part that changes can be compared by itself.
pub(crate) type Value = [u64; PRIORITIES + 6];
pub(crate) const ZERO: Value = [0; PRIORITIES + 6];
/// vCPUs not placed come first, one entry a priority.
pub(crate) const EXTRA: usize = PRIORITIES;
pub(crate) const REMOTE: usize = PRIORITIES + 1;
pub(crate) const REMOTE_DEVICES: usize = PRIORITIES + 2;
pub(crate) const HOSTS: usize = PRIORITIES + 3;
pub(crate) const CROWDED: usize = PRIORITIES + 4;
pub(crate) const NODES: usize = PRIORITIES + 5;

fn plus(sum: &mut Value, more: &Value) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn minus(sum: &mut Value, less: &Value) {
    sum.iter_mut().zip(less).for_each(|(sum, less)| *sum -= less);
}

/// A part of a VM on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Index of the node in the fleet.
    pub(crate) node: u32,
    pub(crate) vcpus: u32,
    pub(crate) pages: u64,
}

/// Devices of one slot given to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) demand: u32,
    pub(crate) slot: u32,
    pub(crate) count: u32,
}

/// Where a VM is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Assign {
    pub(crate) host: u32,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) grants: Vec<Grant>,
}

/// How VMs that live on memory bandwidth lie on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Crowd {
    /// Such VMs beyond one a node.
    beyond: u32,
    /// Nodes with PUs and none of them.
    without: u32,
}

impl Crowd {
    /// Nodes that could relieve others.
    fn value(self) -> u64 {
        u64::from(self.beyond.min(self.without))
    }
}

/// Who is where.
#[derive(Debug, Clone)]
pub(crate) struct State<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) uses: Vec<NodeUse>,
    pub(crate) slot_free: Vec<u32>,
    pub(crate) assigns: Vec<Option<Assign>>,
    /// VMs on each host, by number.
    pub(crate) host_vms: Vec<u32>,
    /// VMs of bandwidth on each node.
    heavy: Vec<u32>,
    crowds: Vec<Crowd>,
    /// VMs on each host.
    residents: Vec<Vec<u32>>,
    /// Counts changes of each host: what was worked out for another count is stale.
    pub(crate) versions: Vec<u32>,
    pub(crate) value: Value,
}

impl<'a> State<'a> {
    /// Nobody is placed.
    pub(crate) fn empty(problem: &'a Problem) -> Self {
        let mut value = ZERO;
        for vm in &problem.vms {
            value[vm.priority] += u64::from(problem.shapes[vm.shape].vcpus);
        }
        if problem.spread == SpreadHosts::Most {
            value[HOSTS] = problem.hosts.len() as u64;
        }
        Self {
            problem,
            uses: vec![NodeUse::default(); problem.nodes.len()],
            slot_free: problem.slots.iter().map(|slot| slot.free).collect(),
            assigns: vec![None; problem.vms.len()],
            host_vms: vec![0; problem.hosts.len()],
            heavy: vec![0; problem.nodes.len()],
            crowds: problem
                .hosts
                .iter()
                .map(|host| {
                    let nodes = &problem.has_pus[host.first..host.first + host.count];
                    Crowd { beyond: 0, without: nodes.iter().filter(|has| **has).count() as u32 }
                })
                .collect(),
            residents: vec![Vec::new(); problem.hosts.len()],
            versions: vec![0; problem.hosts.len()],
            value,
        }
    }

    /// VMs on a host and their places.
    pub(crate) fn on_host(&self, host: usize) -> impl Iterator<Item = (usize, &Assign)> {
        let there = self.residents[host].iter().map(|vm| *vm as usize);
        there.filter_map(|vm| self.assigns[vm].as_ref().map(|assign| (vm, assign)))
    }

    pub(crate) fn is_placed(&self, vm: usize) -> bool {
        self.assigns[vm].is_some()
    }

    /// Whether the node holds the piece too.
    pub(crate) fn fits(&self, shape: &Shape, node: usize, vcpus: u32, pages: u64) -> bool {
        let cap = &self.problem.nodes[node];
        if vcpus > 0 && !shape.threads_suit(cap.threads) {
            return false;
        }
        let mut used = self.uses[node];
        used.add_cpus(vcpus, shape.kind, cap.threads);
        used.pages[shape.class] += pages;
        cap.holds(&used, &self.problem.mib)
    }

    fn add_piece(&mut self, shape: &Shape, piece: &Piece) {
        let node = piece.node as usize;
        let used = &mut self.uses[node];
        used.add_cpus(piece.vcpus, shape.kind, self.problem.nodes[node].threads);
        used.pages[shape.class] += piece.pages;
        used.vms += 1;
        if used.vms == 1 {
            self.value[NODES] += 1;
        }
    }

    fn remove_piece(&mut self, shape: &Shape, piece: &Piece) {
        let node = piece.node as usize;
        let used = &mut self.uses[node];
        used.remove_cpus(piece.vcpus, shape.kind, self.problem.nodes[node].threads);
        used.pages[shape.class] -= piece.pages;
        used.vms -= 1;
        if used.vms == 0 {
            self.value[NODES] -= 1;
        }
    }

    /// One VM of bandwidth more on these nodes, or one less.
    fn crowd(&mut self, host: usize, pieces: &[Piece], comes: bool) {
        let before = self.crowds[host].value();
        for piece in pieces {
            let node = piece.node as usize;
            let lone = u32::from(self.problem.has_pus[node]);
            let (heavy, crowd) = (&mut self.heavy[node], &mut self.crowds[host]);
            match (comes, *heavy) {
                (true, 0) => crowd.without -= lone,
                (true, _) => crowd.beyond += 1,
                (false, 1) => crowd.without += lone,
                (false, _) => crowd.beyond -= 1,
            }
            *heavy = if comes { *heavy + 1 } else { *heavy - 1 };
        }
        self.value[CROWDED] = self.value[CROWDED] + self.crowds[host].value() - before;
    }

    /// How much more crowded a host is with a VM there, from 0: with nodes for each of its pieces that have no such VM.
    pub(crate) fn crowds_by(&self, shape: &Shape, host: usize, pieces: &[Piece]) -> u64 {
        if !shape.heavy {
            return 0;
        }
        let mut after = self.crowds[host];
        for piece in pieces {
            let node = piece.node as usize;
            if self.heavy[node] == 0 {
                after.without -= u32::from(self.problem.has_pus[node]);
            } else {
                after.beyond += 1;
            }
        }
        (after.value() + pieces.len() as u64).saturating_sub(self.crowds[host].value())
    }

    /// Functions and pages of 1 GiB that are free on a node and of no use: it has no PU left; or no memory, which leaves
    /// functions without a VM.
    pub(crate) fn stranded(&self, node: usize) -> u64 {
        self.stranded_with(node, self.problem.nodes[node].free_pus(&self.uses[node]).unwrap_or(0))
    }

    /// The same with so many PUs free, once they are known one by one.
    pub(crate) fn stranded_with(&self, node: usize, free_pus: u32) -> u64 {
        let problem = self.problem;
        if !problem.has_pus[node] {
            return 0;
        }
        let (cap, used) = (&problem.nodes[node], &self.uses[node]);
        let host = problem.node_host[node] as usize;
        let (dense, at) = (&problem.hosts[host], (node - problem.hosts[host].first) as u32);
        let functions = || -> u64 {
            let here = dense.slots.clone().filter(|slot| problem.slots[*slot].node == Some(at));
            here.filter(|slot| !problem.slots[*slot].shared).map(|slot| u64::from(self.slot_free[slot])).sum()
        };
        if free_pus == 0 {
            let class = problem.sizes.iter().position(|size| *size == Some(nearmetal_units::PageSize::HUGE_1G));
            let taken = class.map_or(0, |class| used.pages[class]);
            return functions() + problem.gib_pages[node].saturating_sub(taken);
        }
        let full = (0..problem.sizes.len()).all(|class| cap.free_pages(used, class, &problem.mib) == 0);
        if full { functions() } else { 0 }
    }

    /// A VM that stays on PUs of its own uses none of those that are left.
    fn counted(&self, vm: usize, piece: &Piece) -> Piece {
        Piece { vcpus: if self.problem.vms[vm].held { 0 } else { piece.vcpus }, ..*piece }
    }

    /// Places a VM. The place was found with this state.
    pub(crate) fn put(&mut self, vm: usize, assign: Assign) {
        let problem = self.problem;
        let shape = problem.shape_of(vm);
        for piece in &assign.pieces {
            self.add_piece(shape, &self.counted(vm, piece));
        }
        for grant in &assign.grants {
            let slot = grant.slot as usize;
            if !problem.slots[slot].shared {
                self.slot_free[slot] -= grant.count;
            }
        }
        let host = assign.host as usize;
        if shape.heavy {
            self.crowd(host, &assign.pieces, true);
        }
        self.residents[host].push(vm as u32);
        self.host_vms[host] += 1;
        if self.host_vms[host] == 1 {
            match problem.spread {
                SpreadHosts::Fewest => self.value[HOSTS] += 1,
                SpreadHosts::Most => self.value[HOSTS] -= 1,
            }
        }
        self.versions[host] += 1;
        self.value[problem.vms[vm].priority] -= u64::from(shape.vcpus);
        let worth = self.worth(shape, &assign);
        plus(&mut self.value, &worth);
        self.assigns[vm] = Some(assign);
    }

    /// Takes a VM away; `None` if it was not placed.
    pub(crate) fn take(&mut self, vm: usize) -> Option<Assign> {
        let problem = self.problem;
        let assign = self.assigns[vm].take()?;
        let shape = problem.shape_of(vm);
        for piece in &assign.pieces {
            self.remove_piece(shape, &self.counted(vm, piece));
        }
        for grant in &assign.grants {
            let slot = grant.slot as usize;
            if !problem.slots[slot].shared {
                self.slot_free[slot] += grant.count;
            }
        }
        let host = assign.host as usize;
        if shape.heavy {
            self.crowd(host, &assign.pieces, false);
        }
        self.residents[host].retain(|other| *other as usize != vm);
        self.host_vms[host] -= 1;
        if self.host_vms[host] == 0 {
            match problem.spread {
                SpreadHosts::Fewest => self.value[HOSTS] -= 1,
                SpreadHosts::Most => self.value[HOSTS] += 1,
            }
        }
        self.versions[host] += 1;
        self.value[problem.vms[vm].priority] += u64::from(shape.vcpus);
        let worth = self.worth(shape, &assign);
        minus(&mut self.value, &worth);
        Some(assign)
    }

    /// What a place costs by itself: extra nodes, remote memory, remote devices.
    pub(crate) fn worth(&self, shape: &Shape, assign: &Assign) -> Value {
        let mut value = ZERO;
        let asked = match shape.cells {
            Cells::Free => 1,
            Cells::Fixed(count) => count as usize,
        };
        value[EXTRA] = assign.pieces.len().saturating_sub(asked) as u64;
        value[REMOTE] = self.remote(shape, assign.host as usize, &assign.pieces);
        for grant in &assign.grants {
            value[REMOTE_DEVICES] +=
                u64::from(grant.count) * self.device_cost(shape, assign.host as usize, &assign.pieces, grant);
        }
        value
    }

    /// Memory away from the node with most vCPUs, in MiB times (distance - 10).
    pub(crate) fn remote(&self, shape: &Shape, host: usize, pieces: &[Piece]) -> u64 {
        if pieces.len() < 2 {
            return 0;
        }
        let first = self.problem.hosts[host].first;
        let near = self.problem.near(host);
        let most = pieces.iter().map(|piece| piece.vcpus).max().unwrap_or(0);
        let from = |home: &Piece| -> u64 {
            let cost = |piece: &Piece| {
                piece.pages
                    * self.problem.mib[shape.class]
                    * near.beyond(home.node as usize - first, piece.node as usize - first)
            };
            pieces.iter().map(cost).sum()
        };
        pieces.iter().filter(|piece| piece.vcpus == most).map(from).min().unwrap_or(0)
    }

    fn device_cost(&self, shape: &Shape, host: usize, pieces: &[Piece], grant: &Grant) -> u64 {
        let demand = shape.demands[grant.demand as usize];
        if demand.locality == Locality::Far { 0 } else { self.slot_cost(host, pieces, grant.slot as usize) }
    }

    /// How far a slot is from the nodes of a VM: 0 on one of them, 1 in their package, 2 beyond or unknown.
    pub(crate) fn slot_cost(&self, host: usize, pieces: &[Piece], slot: usize) -> u64 {
        let Some(node) = self.problem.slots[slot].node else { return 2 };
        let first = self.problem.hosts[host].first;
        let near = self.problem.near(host);
        let at = node as usize;
        if pieces.iter().any(|piece| piece.node as usize - first == at) {
            0
        } else if pieces.iter().any(|piece| near.same_package(piece.node as usize - first, at)) {
            1
        } else {
            2
        }
    }
}
