//! Room for a VM by moving others between the nodes of one host: an exact search over a few nodes, with a limit.

use crate::dense::{Assign, Cells, NodeUse, Piece, State};
use crate::search::Random;

/// Assignments tried before a subset of nodes is given up.
const LIMIT: u32 = 6000;
/// Nodes taken into a subset at most: the search is exponential in what lies on them.
const MOST_NODES: usize = 8;
/// Pieces moved at most.
const MOST_ITEMS: usize = 40;

/// A piece that may be moved.
#[derive(Debug, Clone, Copy)]
struct Item {
    vm: u32,
    /// Which piece of the VM.
    piece: u32,
    vcpus: u32,
    pages: u64,
    size: u64,
}

/// The search's buffers.
#[derive(Debug, Default)]
pub(crate) struct Repacker {
    nodes: Vec<usize>,
    items: Vec<Item>,
    uses: Vec<NodeUse>,
    place: Vec<usize>,
    smallest: Vec<(u32, u64)>,
    tried: u32,
    class: usize,
}

impl Repacker {
    /// New places of VMs on this host so that `vm` finds room among them; `None` if none was found.
    pub(crate) fn make_room(
        &mut self,
        state: &State<'_>,
        vm: usize,
        host: usize,
        random: &mut Random,
    ) -> Option<Vec<(usize, Assign)>> {
        let shape = state.problem.shape_of(vm);
        if !shape.demands.is_empty() || (!shape.hosts.is_empty() && !shape.hosts[host]) {
            return None;
        }
        let cells = match shape.cells {
            Cells::Free => 1,
            Cells::Fixed(count) => count,
        };
        if !self.choose_nodes(state, vm, host, cells, random) {
            return None;
        }
        self.class = shape.class;
        self.gather(state, vm, cells);
        if self.items.len() > MOST_ITEMS {
            return None;
        }
        // The largest first; among equals by chance, so that another try is another search.
        for item in &mut self.items {
            item.size = item.size * 16 + (random.next() & 15);
        }
        self.items.sort_unstable_by_key(|item| (std::cmp::Reverse(item.size), item.vm, item.piece));
        self.smallest.clear();
        self.smallest.resize(self.items.len() + 1, (u32::MAX, u64::MAX));
        for index in (0..self.items.len()).rev() {
            let (item, after) = (self.items[index], self.smallest[index + 1]);
            self.smallest[index] = (after.0.min(item.vcpus), after.1.min(item.pages));
        }
        self.place.clear();
        self.place.resize(self.items.len(), usize::MAX);
        self.tried = 0;
        self.descend(state, 0).then(|| self.result(state, vm, host))
    }

    /// Nodes by chance until together they have what the VM needs, and perhaps some more.
    fn choose_nodes(&mut self, state: &State<'_>, vm: usize, host: usize, cells: u32, random: &mut Random) -> bool {
        let problem = state.problem;
        let (dense, shape) = (&problem.hosts[host], problem.shape_of(vm));
        self.nodes.clear();
        let (mut pus, mut pages) = (0u64, 0u64);
        let more = random.below(3);
        let mut extra = 0;
        let mut order: Vec<usize> = (dense.first..dense.first + dense.count).collect();
        while !order.is_empty() && self.nodes.len() < MOST_NODES {
            let enough = pus >= u64::from(shape.vcpus) && pages >= shape.pages && self.nodes.len() >= cells as usize;
            if enough && extra >= more {
                break;
            }
            let node = order.swap_remove(random.below(order.len()));
            let (cap, used) = (&problem.nodes[node], &state.uses[node]);
            let free = u64::from(cap.free_pus(used).unwrap_or(0));
            let there = cap.free_pages(used, shape.class, &problem.mib);
            // A full node helps nobody but as the extra one.
            if !enough && (free == 0 && there == 0) {
                continue;
            }
            extra += usize::from(enough);
            pus += free;
            pages += there;
            self.nodes.push(node);
        }
        pus >= u64::from(shape.vcpus) && pages >= shape.pages && self.nodes.len() >= cells as usize
    }

    /// Takes what may be moved off the chosen nodes.
    fn gather(&mut self, state: &State<'_>, vm: usize, cells: u32) {
        let problem = state.problem;
        self.items.clear();
        self.uses.clear();
        self.uses.extend(self.nodes.iter().map(|node| state.uses[*node]));
        let size = |vcpus: u32, pages: u64, mib: u64| {
            u64::from(vcpus) * 1000 / problem.mean_pus + pages * mib * 1000 / problem.mean_mib
        };
        let host = problem.node_host[self.nodes[0]];
        for (other, assign) in state.on_host(host as usize) {
            let shape = problem.shape_of(other);
            let groups = problem.vms[other].groups.iter().any(|group| group.scope == crate::model::Scope::Node);
            let asked = match shape.cells {
                Cells::Free => 1,
                Cells::Fixed(count) => count as usize,
            };
            let fixed = groups || problem.vms[other].fixed || !shape.demands.is_empty() || assign.pieces.len() != asked;
            if fixed {
                continue;
            }
            for (piece, at) in assign.pieces.iter().enumerate() {
                let Some(index) = self.nodes.iter().position(|node| *node == at.node as usize) else { continue };
                let threads = problem.nodes[at.node as usize].threads;
                self.uses[index].remove_cpus(at.vcpus, shape.kind, threads);
                self.uses[index].pages[shape.class] -= at.pages;
                self.items.push(Item {
                    vm: other as u32,
                    piece: piece as u32,
                    vcpus: at.vcpus,
                    pages: at.pages,
                    size: size(at.vcpus, at.pages, problem.mib[shape.class]),
                });
            }
        }
        let shape = problem.shape_of(vm);
        for piece in 0..cells {
            let (vcpus, pages) = shape.cell(piece, cells);
            let size = size(vcpus, pages, problem.mib[shape.class]);
            self.items.push(Item { vm: vm as u32, piece, vcpus, pages, size });
        }
    }

    fn descend(&mut self, state: &State<'_>, index: usize) -> bool {
        if index == self.items.len() {
            return true;
        }
        if self.tried >= LIMIT || self.is_hopeless(state, index) {
            return false;
        }
        let problem = state.problem;
        let item = self.items[index];
        let shape = problem.shape_of(item.vm as usize);
        // Best fit first: the node with the fewest PUs left.
        let mut options = [(u64::MAX, usize::MAX); MOST_NODES];
        let mut count = 0;
        for at in 0..self.nodes.len() {
            let cap = &problem.nodes[self.nodes[at]];
            let sibling = (0..index).any(|other| self.items[other].vm == item.vm && self.place[other] == at);
            if sibling || !shape.threads_suit(cap.threads) {
                continue;
            }
            let mut used = self.uses[at];
            used.add_cpus(item.vcpus, shape.kind, cap.threads);
            used.pages[shape.class] += item.pages;
            if !cap.holds(&used, &problem.mib) {
                continue;
            }
            // Two nodes in the same state lead to the same plans, unless a sibling tells them apart.
            let twin = (0..at).any(|other| {
                let alike = self.uses[other] == self.uses[at] && problem.nodes[self.nodes[other]] == *cap;
                alike && shape.cells == Cells::Free && options[..count].iter().any(|(_, option)| *option == other)
            });
            if !twin {
                let pus = u64::from(cap.free_pus(&used).unwrap_or(0)) * 1000 / problem.mean_pus;
                let pages = cap.free_pages(&used, shape.class, &problem.mib) * problem.mib[shape.class] * 1000;
                options[count] = (pus + pages / problem.mean_mib, at);
                count += 1;
            }
        }
        options[..count].sort_unstable();
        for (_, at) in options.into_iter().take(count) {
            self.tried += 1;
            let before = self.uses[at];
            self.uses[at].add_cpus(item.vcpus, shape.kind, problem.nodes[self.nodes[at]].threads);
            self.uses[at].pages[shape.class] += item.pages;
            self.place[index] = at;
            if self.descend(state, index + 1) {
                return true;
            }
            self.uses[at] = before;
            self.place[index] = usize::MAX;
        }
        false
    }

    /// Whether what no item can use any more exceeds what may be left over.
    fn is_hopeless(&self, state: &State<'_>, index: usize) -> bool {
        let problem = state.problem;
        let (least_vcpus, least_pages) = self.smallest[index];
        let (mut pus, mut pages) = (0u64, 0u64);
        for (at, node) in self.nodes.iter().enumerate() {
            let cap = &problem.nodes[*node];
            let free = cap.free_pus(&self.uses[at]).unwrap_or(0);
            let there = cap.free_pages(&self.uses[at], self.class, &problem.mib);
            let same_class =
                self.items[index..].iter().all(|item| problem.shape_of(item.vm as usize).class == self.class);
            if free >= least_vcpus && (there >= least_pages || !same_class) {
                pus += u64::from(free);
                pages += if same_class { there } else { u64::MAX / 1024 };
            }
        }
        let (mut vcpus, mut needed) = (0u64, 0u64);
        for item in &self.items[index..] {
            let shape = problem.shape_of(item.vm as usize);
            vcpus += if shape.is_dedicated() { u64::from(item.vcpus) } else { 0 };
            needed += if shape.class == self.class { item.pages } else { 0 };
        }
        vcpus > pus || needed > pages
    }

    fn result(&self, state: &State<'_>, vm: usize, host: usize) -> Vec<(usize, Assign)> {
        let mut moved: std::collections::BTreeMap<u32, Assign> = std::collections::BTreeMap::new();
        for (item, at) in self.items.iter().zip(&self.place) {
            let fresh = || match &state.assigns[item.vm as usize] {
                Some(assign) => assign.clone(),
                None => Assign { host: host as u32, ..Assign::default() },
            };
            let assign = moved.entry(item.vm).or_insert_with(fresh);
            let piece = Piece { node: self.nodes[*at] as u32, vcpus: item.vcpus, pages: item.pages };
            if item.vm as usize == vm {
                assign.pieces.push(piece);
            } else {
                assign.pieces[item.piece as usize] = piece;
            }
        }
        let changed = |(other, assign): (u32, Assign)| {
            let before = state.assigns[other as usize].as_ref();
            (before != Some(&assign)).then_some((other as usize, assign))
        };
        moved.into_iter().filter_map(changed).collect()
    }
}
