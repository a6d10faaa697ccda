//! Improvement: take some VMs away, put them back otherwise, keep what is no worse. Steps are counted, never timed: the
//! clock only ends the search early.

use std::time::Instant;

use super::construct::Constructor;
use super::find::Prefer;
use super::random::Random;
use super::repack::Repacker;
use crate::dense::{Assign, CROWDED, EXTRA, HOSTS, NODES, REMOTE, REMOTE_DEVICES, State, Value};
use crate::model::SpreadHosts;

/// Hosts tried for one VM in a step.
const HOSTS_TRIED: usize = 6;
/// VMs taken off a host for another at most.
const MOST_EVICTED: usize = 12;
/// Steps between two looks at the clock.
const CLOCK: u64 = 16;

/// What a step changed, to be undone.
#[derive(Debug, Default)]
struct Trial {
    before: Vec<(usize, Option<Assign>)>,
}

impl Trial {
    fn note(&mut self, state: &State<'_>, vm: usize) {
        if !self.before.iter().any(|(other, _)| *other == vm) {
            self.before.push((vm, state.assigns[vm].clone()));
        }
    }

    fn take(&mut self, state: &mut State<'_>, vm: usize) {
        self.note(state, vm);
        state.take(vm);
    }

    fn put(&mut self, state: &mut State<'_>, vm: usize, assign: Assign) {
        self.note(state, vm);
        state.put(vm, assign);
    }

    fn undo(&mut self, state: &mut State<'_>) {
        for (vm, _) in &self.before {
            state.take(*vm);
        }
        for (vm, assign) in self.before.drain(..) {
            if let Some(assign) = assign {
                state.put(vm, assign);
            }
        }
    }
}

/// Improves a plan for some steps. Returns the steps done and whether the clock ended them. Stops where nothing is left
/// to gain: at `bound`.
pub(crate) fn improve(
    state: &mut State<'_>,
    constructor: &mut Constructor,
    seed: u64,
    steps: u64,
    until: Option<Instant>,
    bound: &Value,
) -> (u64, bool) {
    let mut random = Random::new(seed);
    let mut repacker = Repacker::default();
    let mut trial = Trial::default();
    for step in 0..steps {
        if state.value <= *bound {
            return (step, false);
        }
        if step % CLOCK == 0 && until.is_some_and(|until| Instant::now() >= until) {
            return (step, true);
        }
        let before = state.value;
        trial.before.clear();
        one(state, constructor, &mut repacker, &mut random, &mut trial, bound);
        if state.value > before {
            trial.undo(state);
        }
    }
    (steps, false)
}

/// Empties hosts, those with the fewest vCPUs first, as long as others have room for all they hold. Each host is tried
/// once: steps of the improvement take hosts by chance, and go to levels before this one. A host tried is a step. Gives the
/// steps done, and whether time ended them.
pub(crate) fn consolidate(
    state: &mut State<'_>,
    constructor: &mut Constructor,
    steps: u64,
    until: Option<Instant>,
    bound: &Value,
) -> (u64, bool) {
    let problem = state.problem;
    if problem.spread != SpreadHosts::Fewest || state.value[HOSTS] <= bound[HOSTS] {
        return (0, false);
    }
    let vcpus = |host: usize| -> u64 { state.on_host(host).map(|(vm, _)| u64::from(problem.shape_of(vm).vcpus)).sum() };
    let mut hosts: Vec<(u64, usize)> =
        (0..problem.hosts.len()).filter(|host| state.host_vms[*host] > 0).map(|host| (vcpus(host), host)).collect();
    hosts.sort_unstable();
    let before = std::mem::replace(&mut constructor.finder.prefer, Prefer::Levels);
    constructor.forget();
    let mut trial = Trial::default();
    let (mut done, mut stopped) = (0, false);
    for (_, host) in hosts {
        if state.value[HOSTS] <= bound[HOSTS] || done == steps {
            break;
        }
        stopped = done % CLOCK == 0 && until.is_some_and(|until| Instant::now() >= until);
        if stopped {
            break;
        }
        done += 1;
        let mut vms: Vec<usize> = state.on_host(host).map(|(vm, _)| vm).collect();
        if vms.iter().any(|vm| problem.vms[*vm].fixed) {
            continue;
        }
        let value = state.value;
        trial.before.clear();
        vms.iter().for_each(|vm| trial.take(state, *vm));
        back(state, constructor, &mut trial, &mut vms);
        if state.value >= value {
            trial.undo(state);
        }
    }
    constructor.finder.prefer = before;
    constructor.forget();
    (done, stopped)
}

/// One step, at the first level that leaves something to gain, or by chance a later one.
fn one(
    state: &mut State<'_>,
    constructor: &mut Constructor,
    repacker: &mut Repacker,
    random: &mut Random,
    trial: &mut Trial,
    bound: &Value,
) {
    let open: Vec<usize> = (0..state.value.len()).filter(|level| state.value[*level] > bound[*level]).collect();
    let Some(first) = open.first() else { return };
    let level = if random.below(3) > 0 { *first } else { open[random.below(open.len())] };
    match level {
        EXTRA | REMOTE | REMOTE_DEVICES => misplaced(state, constructor, random, trial, level),
        HOSTS => close_host(state, constructor, random, trial),
        // VMs of bandwidth find the nodes without others by the score of their places.
        NODES | CROWDED => empty_node(state, constructor, random, trial),
        priority => unplaced(state, constructor, repacker, random, trial, priority),
    }
}

fn unplaced(
    state: &mut State<'_>,
    constructor: &mut Constructor,
    repacker: &mut Repacker,
    random: &mut Random,
    trial: &mut Trial,
    priority: usize,
) {
    let problem = state.problem;
    let waits = |vm: &usize| !state.is_placed(*vm) && problem.vms[*vm].priority == priority;
    let waiting: Vec<usize> = (0..problem.vms.len()).filter(waits).collect();
    if waiting.is_empty() {
        return;
    }
    let vm = waiting[random.below(waiting.len())];
    if let Some(assign) = constructor.place_for(state, vm, true) {
        trial.put(state, vm, assign);
        return;
    }
    constructor.allowed.prepare(state, vm);
    let plain = !constructor.allowed.nodes_matter();
    if plain && (problem.hosts.len() == 1 || random.below(2) == 0) {
        for _ in 0..HOSTS_TRIED {
            let host = random.below(problem.hosts.len());
            if !constructor.allowed.host(host) {
                continue;
            }
            if let Some(moves) = repacker.make_room(state, vm, host, random) {
                moves.iter().for_each(|(other, _)| trial.take(state, *other));
                moves.into_iter().for_each(|(other, assign)| trial.put(state, other, assign));
                return;
            }
        }
        return;
    }
    swap_in(state, constructor, random, trial, vm);
}

/// Puts a VM that is not placed on some host, and what had to make way elsewhere.
fn swap_in(state: &mut State<'_>, constructor: &mut Constructor, random: &mut Random, trial: &mut Trial, vm: usize) {
    let problem = state.problem;
    let shape = problem.shape_of(vm);
    let before = state.value;
    for _ in 0..HOSTS_TRIED {
        let host = random.below(problem.hosts.len());
        constructor.allowed.prepare(state, vm);
        if !constructor.allowed.host(host) {
            continue;
        }
        let mut others: Vec<usize> = state.on_host(host).map(|(other, _)| other).collect();
        others.retain(|other| !problem.vms[*other].fixed && problem.vms[*other].priority >= problem.vms[vm].priority);
        let mut evicted = Vec::new();
        let mut found = constructor.finder.best_on(state, shape, host, &constructor.allowed).is_some();
        while !found && !others.is_empty() && evicted.len() < MOST_EVICTED {
            let other = others.swap_remove(random.below(others.len()));
            trial.take(state, other);
            evicted.push(other);
            found = constructor.finder.best_on(state, shape, host, &constructor.allowed).is_some();
        }
        if found {
            let assign = constructor.finder.assign(host);
            trial.put(state, vm, assign);
            back(state, constructor, trial, &mut evicted);
            if state.value <= before {
                return;
            }
        }
        trial.undo(state);
    }
}

/// Puts VMs back, the largest first.
fn back(state: &mut State<'_>, constructor: &mut Constructor, trial: &mut Trial, vms: &mut [usize]) {
    let problem = state.problem;
    vms.sort_by_key(|vm| {
        let shape = problem.shape_of(*vm);
        (problem.vms[*vm].priority, std::cmp::Reverse(shape.vcpus), *vm)
    });
    for vm in vms {
        if let Some(assign) = constructor.place_for(state, *vm, true) {
            trial.put(state, *vm, assign);
        }
    }
}

/// A VM that is not where it could be at its best: elsewhere, with others making way.
fn misplaced(
    state: &mut State<'_>,
    constructor: &mut Constructor,
    random: &mut Random,
    trial: &mut Trial,
    level: usize,
) {
    let problem = state.problem;
    let ill = |vm: &usize| {
        let Some(assign) = &state.assigns[*vm] else { return false };
        !problem.vms[*vm].fixed && state.worth(problem.shape_of(*vm), assign)[level] > 0
    };
    let list: Vec<usize> = (0..problem.vms.len()).filter(ill).collect();
    if list.is_empty() {
        return;
    }
    let vm = list[random.below(list.len())];
    let before = state.value;
    trial.take(state, vm);
    let host = random.below(problem.hosts.len());
    let mut others: Vec<usize> = state.on_host(host).map(|(other, _)| other).collect();
    others.retain(|other| !problem.vms[*other].fixed);
    let mut evicted = vec![];
    for _ in 0..random.below(MOST_EVICTED / 2) + 1 {
        if others.is_empty() {
            break;
        }
        let other = others.swap_remove(random.below(others.len()));
        trial.take(state, other);
        evicted.push(other);
    }
    constructor.allowed.prepare(state, vm);
    let shape = problem.shape_of(vm);
    let fits = constructor.allowed.host(host)
        && constructor.finder.best_on(state, shape, host, &constructor.allowed).is_some();
    if fits {
        let assign = constructor.finder.assign(host);
        trial.put(state, vm, assign);
    } else {
        evicted.push(vm);
    }
    back(state, constructor, trial, &mut evicted);
    if state.value > before {
        trial.undo(state);
    }
}

/// A host with few VMs: all of them elsewhere.
fn close_host(state: &mut State<'_>, constructor: &mut Constructor, random: &mut Random, trial: &mut Trial) {
    let open: Vec<usize> = (0..state.host_vms.len()).filter(|host| state.host_vms[*host] > 0).collect();
    if open.len() < 2 {
        return;
    }
    // The emptiest of a few.
    let pick = (0..4).map(|_| open[random.below(open.len())]).min_by_key(|host| (state.host_vms[*host], *host));
    let Some(host) = pick else { return };
    let mut vms: Vec<usize> = state.on_host(host).map(|(vm, _)| vm).collect();
    if vms.iter().any(|vm| state.problem.vms[*vm].fixed) {
        return;
    }
    // Another host is shaken too: what it holds may leave room when put back otherwise.
    let other = open[random.below(open.len())];
    if other != host && random.below(2) == 0 {
        let there: Vec<usize> = state.on_host(other).map(|(vm, _)| vm).collect();
        vms.extend(there.into_iter().filter(|vm| !state.problem.vms[*vm].fixed && random.below(2) == 0));
    }
    vms.iter().for_each(|vm| trial.take(state, *vm));
    back(state, constructor, trial, &mut vms);
}

/// A node with few VMs: all of them elsewhere.
fn empty_node(state: &mut State<'_>, constructor: &mut Constructor, random: &mut Random, trial: &mut Trial) {
    let broken: Vec<usize> = (0..state.uses.len()).filter(|node| state.uses[*node].vms > 0).collect();
    if broken.len() < 2 {
        return;
    }
    let mut vms: Vec<usize> = Vec::new();
    for _ in 0..1 + random.below(3) {
        let pick = (0..2).map(|_| broken[random.below(broken.len())]).min_by_key(|node| (state.uses[*node].vms, *node));
        let Some(node) = pick else { return };
        let host = state.problem.node_host[node] as usize;
        let there =
            state.on_host(host).filter(|(_, assign)| assign.pieces.iter().any(|piece| piece.node as usize == node));
        let there: Vec<usize> = there.map(|(vm, _)| vm).filter(|vm| !state.problem.vms[*vm].fixed).collect();
        vms.extend(there.into_iter().filter(|vm| !vms.contains(vm)).collect::<Vec<_>>());
    }
    vms.iter().for_each(|vm| trial.take(state, *vm));
    back(state, constructor, trial, &mut vms);
}
