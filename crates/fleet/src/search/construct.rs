//! A first plan: VMs in some order, each to its best place among those left.

use std::cmp::Reverse;

use super::allowed::Allowed;
use super::find::{Finder, Prefer, Score};
use crate::dense::{Assign, Cells, PAGE_CLASSES, Problem, Shape, State};
use crate::model::{Scope, Together};

/// Scores kept at most: about 130 MB of them.
const MOST_KEPT: usize = 2 << 20;

/// VMs seen before the worth of room is learned first; it is learned anew whenever twice as many were seen.
const FIRST_LOOK: u64 = 16;

/// So many VMs like its first are taken to be a group that must be together, where nobody knows how many come. On the
/// production requests 3 is worse by 1 %; the roomiest host for each group is as good where room is scarce.
const SEVERAL: u64 = 6;

/// Which VMs come first, within a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The largest first.
    Largest,
    /// VMs of many nodes first, then the largest.
    Widest,
    /// Those that use the least memory for a vCPU first, where memory is what is missing.
    Leanest,
}

/// VMs in the order they are to be placed.
pub(crate) fn order(problem: &Problem, order: Order) -> Vec<usize> {
    let mut vms: Vec<usize> = (0..problem.vms.len()).collect();
    let size = |vm: usize| {
        let shape = problem.shape_of(vm);
        let pus = u64::from(shape.vcpus) * 1000 / problem.mean_pus;
        let memory = shape.pages * problem.mib[shape.class] * 1000 / problem.mean_mib;
        (pus + memory, pus.max(memory))
    };
    // A VM few hosts can take goes before one that can be anywhere.
    let hard = |vm: usize| {
        let shape = problem.shape_of(vm);
        let devices: u32 = shape.demands.iter().map(|demand| demand.count).sum();
        let narrow = !shape.hosts.is_empty();
        let together = problem.vms[vm].groups.iter().any(|group| group.rule == Together::Together);
        (Reverse(narrow), Reverse(devices), Reverse(together))
    };
    let cells = |vm: usize| match problem.shape_of(vm).cells {
        Cells::Free => 1,
        Cells::Fixed(count) => count,
    };
    let lean = |vm: usize| {
        let shape = problem.shape_of(vm);
        shape.pages * problem.mib[shape.class] / u64::from(shape.vcpus)
    };
    match order {
        Order::Largest => vms.sort_by_cached_key(|vm| {
            (problem.vms[*vm].priority, hard(*vm), Reverse(size(*vm)), problem.vms[*vm].shape, *vm)
        }),
        Order::Widest => vms.sort_by_cached_key(|vm| {
            (problem.vms[*vm].priority, hard(*vm), Reverse(cells(*vm)), Reverse(size(*vm)), problem.vms[*vm].shape, *vm)
        }),
        Order::Leanest => vms.sort_by_cached_key(|vm| {
            (problem.vms[*vm].priority, lean(*vm), Reverse(cells(*vm)), Reverse(size(*vm)), problem.vms[*vm].shape, *vm)
        }),
    }
    vms
}

/// Places one VM after the other, and remembers for each shape what each host is worth until the host changes.
#[derive(Debug)]
pub(crate) struct Constructor {
    pub(crate) finder: Finder,
    pub(crate) allowed: Allowed,
    /// Where a shape's scores begin, if they are kept.
    kept_at: Vec<Option<usize>>,
    kept: Vec<(u32, Option<Score>)>,
    /// What the members of a group that must be together need of a host: PUs and pages by class.
    bundles: Vec<Option<(u64, [u64; PAGE_CLASSES])>>,
}

impl Constructor {
    pub(crate) fn new(problem: &Problem) -> Self {
        let mut count = vec![0u32; problem.shapes.len()];
        problem.vms.iter().for_each(|vm| count[vm.shape] += 1);
        let (mut next, hosts) = (0, problem.hosts.len());
        let kept_at = count
            .iter()
            .map(|count| {
                let at = (*count > 1 && next + hosts <= MOST_KEPT).then_some(next);
                next += at.map_or(0, |_| hosts);
                at
            })
            .collect();
        let finder = Finder::default();
        let bundles = bundles(problem);
        Self { finder, allowed: Allowed::default(), kept_at, kept: vec![(u32::MAX, None); next], bundles }
    }

    /// Forgets all scores: for a state with another history.
    pub(crate) fn forget(&mut self) {
        self.kept.fill((u32::MAX, None));
    }

    /// The best place of a VM that is not placed. `look_ahead`: a group that must be together gets a host with room for
    /// all of it.
    pub(crate) fn place_for(&mut self, state: &State<'_>, vm: usize, look_ahead: bool) -> Option<Assign> {
        let problem = state.problem;
        self.allowed.prepare(state, vm);
        let shape = problem.shape_of(vm);
        let kept_at = self.kept_at[problem.vms[vm].shape].filter(|_| !self.allowed.nodes_matter());
        // The first of a group that must be together decides for all. Who knows the others takes a host with room for
        // them, or else the roomiest; who does not, one with room for several.
        let starts = self.starts_group(state, vm);
        let bundle = if look_ahead { starts.and_then(|group| self.bundles[group]) } else { None };
        let mut best: Option<(bool, u64, Score, usize)> = None;
        for host in 0..problem.hosts.len() {
            if !self.allowed.host(host) {
                continue;
            }
            let score = match kept_at {
                Some(at) => {
                    let version = state.versions[host];
                    if self.kept[at + host].0 != version {
                        self.kept[at + host] = (version, self.finder.best_on(state, shape, host, &self.allowed));
                    }
                    self.kept[at + host].1
                }
                None => self.finder.best_on(state, shape, host, &self.allowed),
            };
            if let Some(score) = score {
                let (lacks, part) = match (starts, bundle) {
                    (None, _) => (false, 0),
                    (Some(_), None) => (true, u64::MAX - several(state, host, shape)),
                    (Some(_), Some(need)) if has_room(state, host, &need) => (false, 0),
                    (Some(_), Some(need)) => (true, u64::MAX - held_part(state, host, &need)),
                };
                let key = (lacks, part, score, host);
                if best.is_none_or(|other| key < other) {
                    best = Some(key);
                }
            }
        }
        let (.., host) = best?;
        // The buffers hold another host's place by now.
        self.finder.best_on(state, shape, host, &self.allowed)?;
        Some(self.finder.assign(host))
    }

    /// One VM after the other as asked, where it takes the least worth of the room. Nothing is known of those to come but
    /// that they are like those seen; who fits is never refused.
    pub(crate) fn place_as_asked(&mut self, state: &mut State<'_>) {
        let problem = state.problem;
        let mut seen = vec![false; problem.shapes.len()];
        let (mut count, mut next) = (0u64, FIRST_LOOK);
        self.finder.prefer = Prefer::Fit;
        for vm in 0..problem.vms.len() {
            if state.is_placed(vm) {
                seen[problem.vms[vm].shape] = true;
                count += 1;
            }
        }
        for vm in 0..problem.vms.len() {
            if state.is_placed(vm) {
                continue;
            }
            seen[problem.vms[vm].shape] = true;
            count += 1;
            if count > next {
                next = count * 2;
                self.learn(state, &seen);
            }
            if let Some(assign) = self.place_for(state, vm, false) {
                state.put(vm, assign);
            }
        }
    }

    /// Learns what room is worth to VMs of these shapes, and chooses by it from now on.
    pub(crate) fn learn(&mut self, state: &State<'_>, shapes: &[bool]) {
        let known = self.finder.room.learn(state, shapes).is_some();
        self.finder.prefer = if known { Prefer::Room } else { Prefer::Fit };
        self.forget();
    }

    /// Places all of them, in order. What does not fit is left out.
    pub(crate) fn place_all(&mut self, state: &mut State<'_>, vms: &[usize], look_ahead: bool) {
        for &vm in vms {
            if !state.is_placed(vm) {
                if let Some(assign) = self.place_for(state, vm, look_ahead) {
                    let group = if look_ahead { self.starts_group(state, vm) } else { None };
                    state.put(vm, assign);
                    if let Some(group) = group {
                        self.place_others(state, group, vms);
                    }
                }
            }
        }
    }

    /// The others of a group, at once: before somebody else takes the room it was started in.
    fn place_others(&mut self, state: &mut State<'_>, group: usize, among: &[usize]) {
        let problem = state.problem;
        let mut others: Vec<usize> = problem.members[group].iter().map(|vm| *vm as usize).collect();
        others.retain(|vm| !state.is_placed(*vm) && (among.len() == problem.vms.len() || among.contains(vm)));
        others.sort_by_key(|vm| {
            let shape = problem.shape_of(*vm);
            (problem.vms[*vm].priority, Reverse(shape.vcpus), *vm)
        });
        for vm in others {
            if let Some(assign) = self.place_for(state, vm, true) {
                state.put(vm, assign);
            }
        }
    }

    /// The group that must be on one host, of which none is placed yet.
    fn starts_group(&self, state: &State<'_>, vm: usize) -> Option<usize> {
        let problem = state.problem;
        let group = problem.vms[vm].groups.iter().find(|group| group.rule == Together::Together)?;
        let first = problem.members[group.group].iter().all(|other| !state.is_placed(*other as usize));
        (first && group.scope == Scope::Host).then_some(group.group)
    }
}

fn bundles(problem: &Problem) -> Vec<Option<(u64, [u64; PAGE_CLASSES])>> {
    let of_group = |(index, members): (usize, &Vec<u32>)| {
        let mut need = (0, [0; PAGE_CLASSES]);
        for vm in members {
            let dense = &problem.vms[*vm as usize];
            if dense.groups.iter().any(|group| group.group == index && group.rule == Together::Together) {
                let shape = &problem.shapes[dense.shape];
                need.0 += if shape.is_dedicated() { u64::from(shape.vcpus) } else { 0 };
                need.1[shape.class] += shape.pages;
            }
        }
        (need != (0, [0; PAGE_CLASSES])).then_some(need)
    };
    problem.members.iter().enumerate().map(of_group).collect()
}

/// How many VMs of a shape a host has room for by sums, several at most.
fn several(state: &State<'_>, host: usize, shape: &Shape) -> u64 {
    let (pus, pages) = free_of(state, host);
    let by_pus = if shape.is_dedicated() { pus / u64::from(shape.vcpus.max(1)) } else { SEVERAL };
    let by_pages = pages[shape.class].checked_div(shape.pages).unwrap_or(SEVERAL);
    by_pus.min(by_pages).min(SEVERAL)
}

/// How much of a need a host can hold, in thousandths.
fn held_part(state: &State<'_>, host: usize, need: &(u64, [u64; PAGE_CLASSES])) -> u64 {
    let (pus, pages) = free_of(state, host);
    let part = |there: u64, need: u64| (there * 1000).checked_div(need).map_or(1000, |part| part.min(1000));
    let of_pages = pages.iter().zip(&need.1).map(|(there, need)| part(*there, *need)).min().unwrap_or(1000);
    part(pus, need.0).min(of_pages)
}

fn has_room(state: &State<'_>, host: usize, need: &(u64, [u64; PAGE_CLASSES])) -> bool {
    let (pus, pages) = free_of(state, host);
    pus >= need.0 && pages.iter().zip(&need.1).all(|(there, need)| there >= need)
}

fn free_of(state: &State<'_>, host: usize) -> (u64, [u64; PAGE_CLASSES]) {
    let problem = state.problem;
    let dense = &problem.hosts[host];
    let (mut pus, mut pages) = (0, [0; PAGE_CLASSES]);
    for node in dense.first..dense.first + dense.count {
        let (cap, used) = (&problem.nodes[node], &state.uses[node]);
        pus += u64::from(cap.free_pus(used).unwrap_or(0));
        for (class, pages) in pages.iter_mut().enumerate() {
            *pages += cap.free_pages(used, class, &problem.mib);
        }
    }
    (pus, pages)
}
