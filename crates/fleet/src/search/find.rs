//! The best place for a VM on one host. Nothing is allocated for a candidate: the buffers are the finder's.

use super::allowed::Allowed;
use super::room::{Room, VCPU};
use crate::dense::{Assign, Cells, Grant, Piece, Shape, State};
use crate::model::{Locality, SpreadHosts};

/// What a place costs: extra nodes, remote memory, remote devices, a host opened, nodes opened, and how ill it fits.
/// Smaller is better.
pub(crate) type Score = [u64; 6];

/// Added to the fit of a VM without devices on a node with devices: other nodes come first.
const STRANDS: u64 = 1 << 32;

/// Counts before nodes opened, in one number with them: what a place crowds VMs of bandwidth.
pub(crate) const CROWDS: u64 = 1 << 32;

/// What decides between places that cost a VM itself the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Prefer {
    /// The levels: no host opened, then no node opened, then the fit.
    #[default]
    Levels,
    /// The fit, in which a host opened counts as a mean node left empty: where more is asked for than there is, or
    /// nobody knows what comes, room that fits is worth more than a host left empty.
    Fit,
    /// The worth of the room taken, by [`Room`]; among equals the fit.
    Room,
}

/// What opening a host counts in the fit: measured on the production requests, 0 to 1000 differ by a percent.
const OPENS: u64 = 1000;

/// What opening a host counts in worth of room. On the production requests 8 vCPUs against none need a third fewer hosts
/// where there are plenty, and cost up to 1 % of the vCPUs where there are not.
const OPENS_ROOM: u64 = 8 * VCPU;

/// Finds places.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    pub(crate) prefer: Prefer,
    /// What room is worth, for [`Prefer::Room`].
    pub(crate) room: Room,
    pieces: Vec<Piece>,
    grants: Vec<Grant>,
    best: Vec<Piece>,
    best_grants: Vec<Grant>,
    /// Nodes a cell fits, with how ill.
    candidates: Vec<(usize, u64)>,
    /// The one slot devices may come from.
    pub(crate) only: Option<usize>,
    chosen: Vec<(u64, u64, usize)>,
}

impl Finder {
    /// The best place on a host, kept for [`Self::assign`]; `None` if it does not fit.
    pub(crate) fn best_on(
        &mut self,
        state: &State<'_>,
        shape: &Shape,
        host: usize,
        allowed: &Allowed,
    ) -> Option<Score> {
        if !shape.hosts.is_empty() && !shape.hosts[host] {
            return None;
        }
        match shape.cells {
            Cells::Fixed(count) if count > 1 => self.cells(state, shape, host, count, allowed),
            Cells::Fixed(_) => self.single(state, shape, host, allowed),
            Cells::Free => match self.single(state, shape, host, allowed) {
                None => self.split(state, shape, host, allowed),
                found => found,
            },
        }
    }

    /// A VM's cells on just these nodes.
    pub(crate) fn at(
        &mut self,
        state: &State<'_>,
        shape: &Shape,
        host: usize,
        nodes: &[usize],
    ) -> Option<(Score, Assign)> {
        self.pieces.clear();
        let count = nodes.len() as u32;
        for (index, node) in (0..count).zip(nodes) {
            let (vcpus, pages) = shape.cell(index, count);
            if !state.fits(shape, *node, vcpus, pages) {
                return None;
            }
            self.pieces.push(Piece { node: *node as u32, vcpus, pages });
        }
        let mut best = None;
        self.consider(state, shape, host, &mut best);
        Some((best?, self.assign(host)))
    }

    /// What the last successful search found.
    pub(crate) fn assign(&self, host: usize) -> Assign {
        Assign { host: host as u32, pieces: self.best.clone(), grants: self.best_grants.clone() }
    }

    fn single(&mut self, state: &State<'_>, shape: &Shape, host: usize, allowed: &Allowed) -> Option<Score> {
        let dense = &state.problem.hosts[host];
        let mut best: Option<Score> = None;
        for node in dense.first..dense.first + dense.count {
            if !allowed.node(node) || !state.fits(shape, node, shape.vcpus, shape.pages) {
                continue;
            }
            self.pieces.clear();
            self.pieces.push(Piece { node: node as u32, vcpus: shape.vcpus, pages: shape.pages });
            self.consider(state, shape, host, &mut best);
        }
        best
    }

    /// So many cells: around each node that holds one, the nearest others that do.
    fn cells(&mut self, state: &State<'_>, shape: &Shape, host: usize, count: u32, allowed: &Allowed) -> Option<Score> {
        let dense = &state.problem.hosts[host];
        if dense.count < count as usize {
            return None;
        }
        let (vcpus, pages) = shape.cell(0, count);
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        for node in dense.first..dense.first + dense.count {
            if allowed.node(node) && state.fits(shape, node, vcpus, pages) {
                candidates.push((node, fit(state, shape, node, vcpus, pages)));
            }
        }
        let near = state.problem.near(host);
        let mut best: Option<Score> = None;
        let mut chosen = std::mem::take(&mut self.chosen);
        if candidates.len() >= count as usize {
            for seed in 0..candidates.len() {
                let (origin, _) = candidates[seed];
                chosen.clear();
                chosen.extend(candidates.iter().map(|(node, ill)| {
                    let away =
                        if *node == origin { 0 } else { 1 + near.beyond(origin - dense.first, node - dense.first) };
                    (away, *ill, *node)
                }));
                chosen.sort_unstable();
                self.pieces.clear();
                for (index, (_, _, node)) in (0..count).zip(&chosen) {
                    let (vcpus, pages) = shape.cell(index, count);
                    if index > 0 && !state.fits(shape, *node, vcpus, pages) {
                        break;
                    }
                    self.pieces.push(Piece { node: *node as u32, vcpus, pages });
                }
                if self.pieces.len() == count as usize {
                    self.consider(state, shape, host, &mut best);
                }
                // All nodes are taken whatever the seed: with two alike nothing else can come out.
                if candidates.len() == count as usize && shape.demands.is_empty() && count == 2 {
                    break;
                }
            }
        }
        (self.candidates, self.chosen) = (candidates, chosen);
        best
    }

    /// Over as few nodes as possible, around each node in turn.
    fn split(&mut self, state: &State<'_>, shape: &Shape, host: usize, allowed: &Allowed) -> Option<Score> {
        let dense = &state.problem.hosts[host];
        if dense.count < 2 {
            return None;
        }
        // A quick sum says no for most hosts.
        let (mut vcpus, mut pages) = (0u64, 0u64);
        for node in dense.first..dense.first + dense.count {
            let (cap, used) = (&state.problem.nodes[node], &state.uses[node]);
            vcpus += u64::from(cap.free_pus(used).unwrap_or(0));
            pages += cap.free_pages(used, shape.class, &state.problem.mib);
        }
        if pages < shape.pages || (shape.is_dedicated() && vcpus < u64::from(shape.vcpus)) {
            return None;
        }
        let mut best = None;
        // A guest that sees its nodes has on each of them its share of the memory.
        let ways: &[bool] = if shape.mirrors { &[true] } else { &[true, false] };
        for &together in ways {
            for seed in 0..dense.count {
                if self.grow(state, shape, host, seed, together, allowed) {
                    self.consider(state, shape, host, &mut best);
                }
            }
            if best.is_some() {
                break;
            }
        }
        best
    }

    /// Takes from the nodes around one. `together`: memory goes with the vCPUs; otherwise each where there is some.
    fn grow(
        &mut self,
        state: &State<'_>,
        shape: &Shape,
        host: usize,
        seed: usize,
        together: bool,
        allowed: &Allowed,
    ) -> bool {
        let dense = &state.problem.hosts[host];
        let (mut vcpus, mut pages) = (shape.vcpus, shape.pages);
        self.pieces.clear();
        for &at in state.problem.near(host).around(seed) {
            let node = dense.first + usize::from(at);
            if !allowed.node(node) {
                continue;
            }
            let (cap, used) = (&state.problem.nodes[node], &state.uses[node]);
            let suits = shape.threads_suit(cap.threads);
            let room = if suits { cap.room(used, shape.kind).min(vcpus) } else { 0 };
            let there = cap.free_pages(used, shape.class, &state.problem.mib).min(pages);
            let (take, memory) = if !together {
                (room, there)
            } else if room == 0 {
                (0, 0)
            } else {
                // The share of what is left: whoever takes the last vCPU takes the last page.
                let share = |vcpu: u32| (u128::from(pages) * u128::from(vcpu)).div_ceil(u128::from(vcpus)) as u64;
                let most = if pages == 0 {
                    room
                } else {
                    ((u128::from(there) * u128::from(vcpus)) / u128::from(pages)) as u32
                };
                let take = room.min(most);
                (take, share(take).min(pages))
            };
            if (take == 0 && memory == 0) || memory > there {
                continue;
            }
            self.pieces.push(Piece { node: node as u32, vcpus: take, pages: memory });
            vcpus -= take;
            pages -= memory;
            if vcpus == 0 && pages == 0 {
                break;
            }
        }
        // Growing a pool takes from the same memory as the kernel's pages: the sum is what counts.
        vcpus == 0
            && pages == 0
            && self.pieces.iter().all(|piece| state.fits(shape, piece.node as usize, piece.vcpus, piece.pages))
    }

    fn consider(&mut self, state: &State<'_>, shape: &Shape, host: usize, best: &mut Option<Score>) {
        if !shape.can_show(&self.pieces) {
            return;
        }
        let asked = match shape.cells {
            Cells::Free => 1,
            Cells::Fixed(count) => count as usize,
        };
        let extra = (self.pieces.len().saturating_sub(asked)) as u64;
        let remote = state.remote(shape, host, &self.pieces);
        if best.is_some_and(|best| [extra, remote] > best[..2].try_into().unwrap_or([0, 0])) {
            return;
        }
        let Some(devices) = self.grant(state, shape, host) else { return };
        let opened = match state.problem.spread {
            SpreadHosts::Fewest => u64::from(state.host_vms[host] == 0),
            SpreadHosts::Most => u64::from(state.host_vms[host] > 0),
        };
        let nodes = self.pieces.iter().filter(|piece| state.uses[piece.node as usize].vms == 0).count() as u64;
        let nodes = nodes + CROWDS * state.crowds_by(shape, host, &self.pieces);
        let ill: u64 =
            self.pieces.iter().map(|piece| fit(state, shape, piece.node as usize, piece.vcpus, piece.pages)).sum();
        let ill = ill + if self.pieces.len() == 1 { narrows(state, shape, host, &self.pieces[0]) } else { 0 };
        let score = match state.problem.spread {
            SpreadHosts::Fewest if self.prefer == Prefer::Room => {
                let loss = self.room.loss(state, shape, host, &self.pieces, &self.grants);
                [extra, remote, devices, 0, loss + opened * OPENS_ROOM, ill]
            }
            SpreadHosts::Fewest if self.prefer == Prefer::Fit => [extra, remote, devices, 0, 0, ill + OPENS * opened],
            _ => [extra, remote, devices, opened, nodes, ill],
        };
        if best.is_none_or(|best| score < best) {
            *best = Some(score);
            std::mem::swap(&mut self.best, &mut self.pieces);
            std::mem::swap(&mut self.best_grants, &mut self.grants);
        }
    }

    /// Devices for the nodes in `pieces`, the nearest first; `None` if they cannot be had.
    fn grant(&mut self, state: &State<'_>, shape: &Shape, host: usize) -> Option<u64> {
        self.grants.clear();
        let mut cost = 0;
        for (index, demand) in (0u32..).zip(&shape.demands) {
            let mut missing = demand.count;
            let last = if demand.locality == Locality::Required { 0 } else { 2 };
            for away in 0..=last {
                for slot in state.problem.hosts[host].slots.clone() {
                    if missing == 0 {
                        break;
                    }
                    let there = &state.problem.slots[slot];
                    if self.only.is_some_and(|only| only != slot) {
                        continue;
                    }
                    if !there.suits(demand.selector) || state.slot_cost(host, &self.pieces, slot) != away {
                        continue;
                    }
                    let own = self.grants.iter().filter(|grant| grant.slot as usize == slot);
                    let taken = if there.shared { 0 } else { own.map(|grant| grant.count).sum() };
                    let count = missing.min(state.slot_free[slot].saturating_sub(taken));
                    if count > 0 {
                        self.grants.push(Grant { demand: index, slot: slot as u32, count });
                        missing -= count;
                        cost += if demand.locality == Locality::Far { 0 } else { away * u64::from(count) };
                    }
                }
            }
            if missing > 0 {
                return None;
            }
        }
        Some(cost)
    }
}

/// How ill a piece fits: what it leaves, PUs and memory each in thousandths of a mean node, and how unlike the two are:
/// PUs without memory are as lost as memory without PUs.
pub(crate) fn fit(state: &State<'_>, shape: &Shape, node: usize, vcpus: u32, pages: u64) -> u64 {
    let problem = state.problem;
    let cap = &problem.nodes[node];
    let mut used = state.uses[node];
    used.add_cpus(vcpus, shape.kind, cap.threads);
    used.pages[shape.class] += pages;
    let pus = u64::from(cap.free_pus(&used).unwrap_or(0)) * 1000 / problem.mean_pus;
    let memory = cap.free_pages(&used, shape.class, &problem.mib) * problem.mib[shape.class] * 1000 / problem.mean_mib;
    let strands = if shape.demands.is_empty() && problem.has_devices[node] { STRANDS } else { 0 };
    strands + pus + memory + 2 * pus.abs_diff(memory)
}

/// Weight of room for VMs of several cells against how a piece fits.
const NARROWS: u64 = 8;

/// What a VM of one node takes from those of several: room on the host beside its roomiest node, in thousandths of a
/// mean node. The roomiest node's lead over the next is room no VM of two cells can use.
fn narrows(state: &State<'_>, shape: &Shape, host: usize, piece: &Piece) -> u64 {
    let problem = state.problem;
    let dense = &problem.hosts[host];
    let (mut most, mut most_after, mut this, mut this_after) = (0, 0, 0, 0);
    for node in dense.first..dense.first + dense.count {
        let (cap, used) = (&problem.nodes[node], &state.uses[node]);
        let room = |pus: u64, pages: u64| {
            let memory = pages * problem.mib[shape.class] * 1000 / problem.mean_mib;
            (pus * 1000 / problem.mean_pus).min(memory)
        };
        let (pus, pages) =
            (u64::from(cap.free_pus(used).unwrap_or(0)), cap.free_pages(used, shape.class, &problem.mib));
        let before = room(pus, pages);
        let mut after = before;
        if node == piece.node as usize {
            after = room(pus.saturating_sub(u64::from(piece.vcpus)), pages.saturating_sub(piece.pages));
            (this, this_after) = (before, after);
        }
        most = most.max(before);
        most_after = most_after.max(after);
    }
    // Sum beside the roomiest, before and after: only this node's part and the roomiest changed.
    NARROWS * ((this + most_after).saturating_sub(this_after + most))
}
