//! What free room is worth: the best mix of the VMs known that it could still take. Where a VM takes the least of that
//! worth, it does the least harm to those to come (the bid prices of network revenue management, Talluri and van Ryzin
//! 1998).
//!
//! VMs of two cells or with devices on their node count whole, the others less, and the less the smaller they are: what is small finds a place
//! almost anywhere, what is large does not. Fixed parts do better here than multipliers learned from the mix so far
//! (tried: 2 to 6 % fewer vCPUs on the production requests). A guide only: any worth gives a valid plan.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::dense::{Cells, Grant, Piece, Problem, Shape, State};
use crate::model::Locality;

/// Resources told apart: PUs, memory, and devices by selector.
const MOST: usize = 4;
/// Cells of the table at most; where there would be more, units grow.
const MOST_CELLS: usize = 1 << 15;
/// Sets of VMs of two cells kept at most.
const MOST_SETS: usize = 256;
/// A vCPU in the unit worth is counted in.
pub(crate) const VCPU: u64 = 1 << 10;
/// What a vCPU of the largest VM of one node counts, in parts of one of two cells, and how that falls with the VM's size:
/// of 0.5 to 0.7 and powers of 0 to 0.5 on the production requests none was best throughout; they differ by 1 %.
const SINGLE: f64 = 0.6;
const FALL: f64 = 0.3;

type Amounts = [usize; MOST];

/// VMs of one shape.
#[derive(Debug, Clone)]
struct Item {
    /// What one cell takes.
    need: Amounts,
    offset: usize,
    vcpus: u64,
    value: u64,
}

/// VMs of two cells side by side.
#[derive(Debug, Clone)]
struct Set {
    need: Amounts,
    offset: usize,
    value: u64,
}

/// Worth of room, for one mix of VMs.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Class of the pages counted.
    class: usize,
    /// PUs and MiB of a unit.
    units: [u64; 2],
    selectors: Vec<usize>,
    extent: Amounts,
    stride: Amounts,
    singles: Vec<Item>,
    pairs: Vec<Item>,
    sets: Vec<Set>,
    /// Worth of a node by what it has free.
    table: Vec<u64>,
}

impl Room {
    /// Learns what room is worth to VMs of the shapes known. `None` where none of them owns whole PUs on one node or two.
    pub(crate) fn learn(&mut self, state: &State<'_>, known: &[bool]) -> Option<()> {
        let problem = state.problem;
        self.class = commonest_class(problem, known)?;
        let counted = |(index, shape): &(usize, &Shape)| known[*index] && is_counted(shape, self.class);
        let shapes: Vec<&Shape> = problem.shapes.iter().enumerate().filter(counted).map(|(_, shape)| shape).collect();
        self.selectors = selectors(&shapes);
        self.measure(state, &shapes);
        self.singles.clear();
        self.pairs.clear();
        for shape in shapes {
            let need = self.need(problem, shape);
            let item = Item { need, offset: self.index(&need), vcpus: u64::from(shape.vcpus), value: 0 };
            let list = if cells(shape) == 2 { &mut self.pairs } else { &mut self.singles };
            list.push(item);
        }
        let largest = self.singles.iter().map(|item| item.vcpus).max().unwrap_or(1) as f64;
        for item in &mut self.singles {
            // Its devices are on few nodes: it is as hard to place as one of two cells.
            let part = if item.need[2..].iter().any(|count| *count > 0) {
                1.0
            } else {
                SINGLE * (item.vcpus as f64 / largest).powf(FALL)
            };
            item.value = ((item.vcpus * VCPU) as f64 * part) as u64;
        }
        self.pairs.iter_mut().for_each(|item| item.value = item.vcpus * VCPU);
        self.list_sets();
        self.fill_table();
        Some(())
    }

    /// What a place takes of a host's worth.
    pub(crate) fn loss(
        &self,
        state: &State<'_>,
        shape: &Shape,
        host: usize,
        pieces: &[Piece],
        grants: &[Grant],
    ) -> u64 {
        let dense = &state.problem.hosts[host];
        let mut loss = 0;
        for (at, piece) in pieces.iter().enumerate() {
            let place = piece.node as usize - dense.first;
            let side = |piece: &Piece| (piece.node as usize - dense.first) / 2;
            if pieces[..at].iter().any(|before| side(before) == place / 2) {
                continue;
            }
            let nodes = self.side(state, host, place / 2);
            let mut after = nodes;
            for piece in pieces.iter().filter(|piece| side(piece) == place / 2) {
                let own = &mut after[(piece.node as usize - dense.first) % 2];
                *own = self.free(state, host, piece.node as usize, Some((shape, piece, grants)));
            }
            loss += self.of(&nodes).saturating_sub(self.of(&after));
        }
        loss
    }

    /// Units, extents and strides: units grow until the table is small enough.
    fn measure(&mut self, state: &State<'_>, shapes: &[&Shape]) {
        let problem = state.problem;
        let parts = || shapes.iter().map(|shape| shape.cell(0, cells(shape)));
        let pus = parts().map(|part| u64::from(part.0)).fold(0, divisor).max(1);
        let mib = parts().map(|part| part.1).fold(0, divisor).max(1);
        self.units = [pus, mib * problem.mib[self.class]];
        loop {
            self.extent = [0; MOST];
            self.stride = [0; MOST];
            for (host, dense) in problem.hosts.iter().enumerate() {
                for node in dense.first..dense.first + dense.count {
                    let free = self.counted(state, host, node, None);
                    self.extent.iter_mut().zip(free).for_each(|(most, free)| *most = (*most).max(free));
                }
            }
            let mut size = 1usize;
            for (stride, extent) in self.stride.iter_mut().zip(&self.extent) {
                *stride = size;
                size = size.saturating_mul(extent.saturating_add(1));
            }
            if size <= MOST_CELLS || self.units.iter().any(|unit| unit >> 60 > 0) {
                break;
            }
            let coarser = usize::from(self.extent[1] > self.extent[0]);
            self.units[coarser] *= 2;
        }
    }

    fn need(&self, problem: &Problem, shape: &Shape) -> Amounts {
        let cells = cells(shape);
        let (vcpus, pages) = shape.cell(0, cells);
        let mut need = [0; MOST];
        need[0] = u64::from(vcpus).div_ceil(self.units[0]) as usize;
        need[1] = (pages * problem.mib[shape.class]).div_ceil(self.units[1]) as usize;
        for demand in shape.demands.iter().filter(|demand| demand.locality == Locality::Required && cells == 1) {
            if let Some(at) = self.selectors.iter().position(|selector| *selector == demand.selector) {
                need[2 + at] += demand.count as usize;
            }
        }
        need
    }

    /// What a node has free in units, after a piece of a VM and its devices, no more than the table knows.
    fn free(&self, state: &State<'_>, host: usize, node: usize, less: Option<(&Shape, &Piece, &[Grant])>) -> Amounts {
        let mut free = self.counted(state, host, node, less);
        free.iter_mut().zip(&self.extent).for_each(|(free, most)| *free = (*free).min(*most));
        free
    }

    fn counted(
        &self,
        state: &State<'_>,
        host: usize,
        node: usize,
        less: Option<(&Shape, &Piece, &[Grant])>,
    ) -> Amounts {
        let problem = state.problem;
        let cap = &problem.nodes[node];
        let mut used = state.uses[node];
        if let Some((shape, piece, _)) = less {
            used.add_cpus(piece.vcpus, shape.kind, cap.threads);
            used.pages[shape.class] += piece.pages;
        }
        let mut free = [0; MOST];
        free[0] = (u64::from(cap.free_pus(&used).unwrap_or(0)) / self.units[0]) as usize;
        let mib = cap.free_pages(&used, self.class, &problem.mib) * problem.mib[self.class];
        free[1] = usize::try_from(mib / self.units[1]).unwrap_or(usize::MAX);
        if !self.selectors.is_empty() {
            let dense = &problem.hosts[host];
            for slot in dense.slots.clone() {
                let there = &problem.slots[slot];
                if there.shared || there.node != Some((node - dense.first) as u32) {
                    continue;
                }
                let taken = less.map_or(0, |(_, _, grants)| {
                    grants.iter().filter(|grant| grant.slot as usize == slot).map(|grant| grant.count).sum()
                });
                for (at, selector) in self.selectors.iter().enumerate() {
                    if there.suits(*selector) {
                        free[2 + at] += state.slot_free[slot].saturating_sub(taken) as usize;
                    }
                }
            }
        }
        free
    }

    /// Two neighbouring nodes of a host; the second is nothing where their number is odd.
    fn side(&self, state: &State<'_>, host: usize, side: usize) -> [Amounts; 2] {
        let dense = &state.problem.hosts[host];
        let of = |at: usize| if at < dense.count { self.free(state, host, dense.first + at, None) } else { [0; MOST] };
        [of(2 * side), of(2 * side + 1)]
    }

    fn index(&self, amounts: &Amounts) -> usize {
        amounts.iter().zip(&self.stride).map(|(amount, stride)| amount * stride).sum()
    }

    /// Worth of two nodes.
    fn of(&self, nodes: &[Amounts; 2]) -> u64 {
        let [one, other] = nodes.map(|node| self.index(&node));
        let mut best = 0;
        for set in &self.sets {
            if (0..MOST).all(|at| set.need[at] <= nodes[0][at] && set.need[at] <= nodes[1][at]) {
                best = best.max(set.value + self.table[one - set.offset] + self.table[other - set.offset]);
            }
        }
        best
    }

    fn list_sets(&mut self) {
        self.sets.clear();
        self.sets.push(Set { need: [0; MOST], offset: 0, value: 0 });
        for at in 0..self.pairs.len() {
            let item = &self.pairs[at];
            for index in 0..self.sets.len() {
                for count in 1.. {
                    let mut set = self.sets[index].clone();
                    set.need.iter_mut().zip(&item.need).for_each(|(sum, need)| *sum += count * need);
                    if set.need.iter().zip(&self.extent).any(|(need, most)| need > most) || self.sets.len() == MOST_SETS
                    {
                        break;
                    }
                    set.offset += count * item.offset;
                    set.value += count as u64 * item.value;
                    self.sets.push(set);
                }
            }
        }
    }

    fn fill_table(&mut self) {
        self.table.clear();
        self.table.resize(self.extent.iter().map(|extent| extent + 1).product(), 0);
        let mut amounts = [0; MOST];
        for index in 0..self.table.len() {
            let mut rest = index;
            for at in (0..MOST).rev() {
                amounts[at] = rest / self.stride[at];
                rest %= self.stride[at];
            }
            let fits = |item: &&Item| item.need.iter().zip(&amounts).all(|(need, there)| need <= there);
            let values = self.singles.iter().filter(fits).map(|item| item.value + self.table[index - item.offset]);
            self.table[index] = values.max().unwrap_or(0);
        }
    }
}

/// The page class most shapes known use.
fn commonest_class(problem: &Problem, known: &[bool]) -> Option<usize> {
    let of = |class: usize| {
        let shapes = problem.shapes.iter().zip(known);
        shapes.filter(|(shape, known)| **known && is_counted(shape, class)).count()
    };
    let most = (0..problem.sizes.len()).max_by_key(|class| (of(*class), Reverse(*class)))?;
    (of(most) > 0).then_some(most)
}

fn is_counted(shape: &Shape, class: usize) -> bool {
    shape.is_dedicated() && shape.class == class && matches!(shape.cells, Cells::Free | Cells::Fixed(1 | 2))
}

/// Cells a shape is counted with: one that may be split is counted whole.
fn cells(shape: &Shape) -> u32 {
    if shape.cells == Cells::Fixed(2) { 2 } else { 1 }
}

/// Selectors of devices that must be on the VM's node, those most shapes want first.
fn selectors(shapes: &[&Shape]) -> Vec<usize> {
    let mut count: BTreeMap<usize, usize> = BTreeMap::new();
    for demand in shapes.iter().flat_map(|shape| &shape.demands) {
        if demand.locality == Locality::Required {
            *count.entry(demand.selector).or_default() += 1;
        }
    }
    let mut all: Vec<(Reverse<usize>, usize)> =
        count.into_iter().map(|(selector, count)| (Reverse(count), selector)).collect();
    all.sort_unstable();
    all.into_iter().take(MOST - 2).map(|(_, selector)| selector).collect()
}

fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { divisor(other, one % other) }
}
