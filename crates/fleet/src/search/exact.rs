//! Small fleets: every way of placing, as far as a limit allows, cut off where the best known cannot be beaten.

use std::cmp::Reverse;

use super::construct::Constructor;
use crate::dense::{Assign, CROWDED, Cells, HOSTS, NodeUse, PRIORITIES, State, Value};
use crate::model::SpreadHosts;

/// VMs and nodes up to which it is worth trying.
const MOST_VMS: usize = 14;
const MOST_NODES: usize = 24;
/// Places tried.
const LIMIT: u32 = 120_000;

struct Search<'s, 'a> {
    state: &'s mut State<'a>,
    constructor: &'s mut Constructor,
    order: Vec<usize>,
    /// vCPUs by priority of the VMs from each position of `order` on.
    undecided: Vec<[u64; PRIORITIES]>,
    /// Pieces of VMs of bandwidth from each position of `order` on.
    relief: Vec<u64>,
    best: Value,
    found: Option<Vec<Option<Assign>>>,
    bound: Value,
    tried: u32,
    /// Hosts and nodes that are alike stand for each other: no group or selector tells them apart.
    alike: bool,
}

/// Improves a plan of a small fleet to the best there is, if the limit allows. Whether it is proven best now: every place
/// of every VM was tried or cut off.
pub(crate) fn finish(state: &mut State<'_>, constructor: &mut Constructor, bound: &Value) -> bool {
    let problem = state.problem;
    let small = problem.vms.len() <= MOST_VMS && problem.nodes.len() <= MOST_NODES;
    if !small || state.value <= *bound {
        return false;
    }
    let before = state.assigns.clone();
    let mut order: Vec<usize> = (0..problem.vms.len()).filter(|vm| !problem.vms[*vm].fixed).collect();
    order.sort_by_key(|vm| {
        let shape = problem.shape_of(*vm);
        (problem.vms[*vm].priority, Reverse(shape.demands.len()), Reverse(shape.vcpus), Reverse(shape.pages), *vm)
    });
    let mut undecided = vec![[0; PRIORITIES]; order.len() + 1];
    for at in (0..order.len()).rev() {
        undecided[at] = undecided[at + 1];
        undecided[at][problem.vms[order[at]].priority] += u64::from(problem.shape_of(order[at]).vcpus);
    }
    let mut relief = vec![0; order.len() + 1];
    for at in (0..order.len()).rev() {
        let shape = problem.shape_of(order[at]);
        let pieces = match shape.cells {
            Cells::Free => problem.nodes.len() as u64,
            Cells::Fixed(count) => u64::from(count),
        };
        relief[at] = relief[at + 1] + if shape.heavy { pieces } else { 0 };
    }
    let best = state.value;
    order.iter().for_each(|vm| drop(state.take(*vm)));
    let alike = problem.members.is_empty() && problem.shapes.iter().all(|shape| shape.hosts.is_empty());
    let bound = *bound;
    let mut search = Search { state, constructor, order, undecided, relief, best, found: None, bound, tried: 0, alike };
    let stopped = search.descend(0);
    // A search that ran to its end, over shapes whose places can all be listed: VMs that may be split and several devices
    // of one VM are tried one way only.
    let listed = |shape: &crate::dense::Shape| {
        matches!(shape.cells, Cells::Fixed(1 | 2))
            && shape.demands.len() <= 1
            && shape.demands.iter().all(|d| d.count == 1)
    };
    let proven = !stopped && problem.shapes.iter().all(listed);
    let (order, found) = (std::mem::take(&mut search.order), search.found.take());
    let mut chosen = found.unwrap_or(before);
    for vm in order {
        if let Some(assign) = chosen[vm].take() {
            state.put(vm, assign);
        }
    }
    proven
}

impl Search<'_, '_> {
    /// What the plan is worth if all VMs to come cost nothing.
    fn at_best(&self, at: usize) -> Value {
        let mut value = self.state.value;
        value.iter_mut().zip(&self.undecided[at]).for_each(|(value, open)| *value -= open);
        if self.state.problem.spread == SpreadHosts::Most {
            value[HOSTS] = value[HOSTS].saturating_sub((self.order.len() - at) as u64);
        }
        // A VM of bandwidth still to come can take one node that has none, and so one of these, for each of its pieces.
        value[CROWDED] = value[CROWDED].saturating_sub(self.relief[at]);
        value
    }

    /// Whether to stop: the limit, or nothing left to gain.
    fn descend(&mut self, at: usize) -> bool {
        if self.at_best(at) >= self.best {
            return false;
        }
        if at == self.order.len() {
            self.best = self.state.value;
            self.found = Some(self.state.assigns.clone());
            return self.best <= self.bound;
        }
        let vm = self.order[at];
        let mut options = self.options(vm);
        options.sort_by_key(|option| option.0);
        for (_, assign) in options {
            self.tried += 1;
            if self.tried > LIMIT {
                return true;
            }
            self.state.put(vm, assign);
            let stop = self.descend(at + 1);
            self.state.take(vm);
            if stop {
                return true;
            }
        }
        self.descend(at + 1)
    }

    fn options(&mut self, vm: usize) -> Vec<(super::Score, Assign)> {
        let problem = self.state.problem;
        let shape = problem.shape_of(vm);
        let mut options = Vec::new();
        self.constructor.allowed.prepare(self.state, vm);
        let Constructor { finder, allowed, .. } = &mut *self.constructor;
        for host in 0..problem.hosts.len() {
            let selected = shape.hosts.is_empty() || shape.hosts[host];
            if !allowed.host(host) || !selected || (self.alike && has_twin(self.state, host)) {
                continue;
            }
            let dense = &problem.hosts[host];
            let before = options.len();
            // Which of two devices a VM has decides what is left for others: each is tried.
            let one = shape.demands.len() == 1 && shape.demands[0].count == 1;
            let slots: Vec<Option<usize>> = if one { dense.slots.clone().map(Some).collect() } else { vec![None] };
            for only in slots {
                finder.only = only;
                let nodes = dense.first..dense.first + dense.count;
                match shape.cells {
                    Cells::Free | Cells::Fixed(1) => {
                        for node in nodes.filter(|node| allowed.node(*node)) {
                            if self.alike && node_has_twin(self.state, host, node) {
                                continue;
                            }
                            options.extend(finder.at(self.state, shape, host, &[node]));
                        }
                    }
                    Cells::Fixed(2) => {
                        for one in nodes.clone().filter(|node| allowed.node(*node)) {
                            for other in nodes.clone().filter(|node| *node != one && allowed.node(*node)) {
                                // Even halves: who is first makes no difference.
                                if one > other && shape.cell(0, 2) == shape.cell(1, 2) {
                                    continue;
                                }
                                options.extend(finder.at(self.state, shape, host, &[one, other]));
                            }
                        }
                    }
                    Cells::Fixed(_) => {}
                }
            }
            finder.only = None;
            if options.len() == before {
                if let Some(score) = finder.best_on(self.state, shape, host, allowed) {
                    options.push((score, finder.assign(host)));
                }
            }
            // Above, a VM that may be split is whole where a node holds it, or takes all of one node and the rest of
            // others. In halves it may leave room on both, which counts while somebody has no place.
            let open = self.best[..PRIORITIES].iter().zip(&self.bound).any(|(best, bound)| best > bound);
            if shape.cells == Cells::Free && shape.vcpus > 1 && open {
                let nodes = dense.first..dense.first + dense.count;
                for one in nodes.clone().filter(|node| allowed.node(*node)) {
                    for other in nodes.clone().filter(|node| *node != one && allowed.node(*node)) {
                        options.extend(finder.at(self.state, shape, host, &[one, other]));
                    }
                }
            }
        }
        options
    }
}

/// Whether a host before this one is the same and as empty.
fn has_twin(state: &State<'_>, host: usize) -> bool {
    let problem = state.problem;
    let same = |other: usize| {
        let (one, two) = (&problem.hosts[other], &problem.hosts[host]);
        let caps = |host: &crate::dense::DenseHost| &problem.nodes[host.first..host.first + host.count];
        state.host_vms[other] == 0 && one.near == two.near && one.slots.is_empty() && caps(one) == caps(two)
    };
    state.host_vms[host] == 0 && problem.hosts[host].slots.is_empty() && (0..host).any(same)
}

/// Whether a node before this one on its host is the same, as empty, and in the same package: with no devices about.
fn node_has_twin(state: &State<'_>, host: usize, node: usize) -> bool {
    let problem = state.problem;
    let (dense, near) = (&problem.hosts[host], problem.near(host));
    let empty = |node: usize| state.uses[node] == NodeUse::default();
    dense.slots.is_empty()
        && empty(node)
        && (dense.first..node).any(|other| {
            empty(other)
                && problem.nodes[other] == problem.nodes[node]
                && near.same_package(other - dense.first, node - dense.first)
                && near.alike(other - dense.first, node - dense.first)
        })
}
