//! From a fleet to a plan.

use std::time::{Duration, Instant};

use crate::bound::{bound, shared_cores, target};
use crate::dense::{
    Assign, CROWDED, Cells, EXTRA, Grant, HOSTS, MILLI, NODES, Piece, Problem, REMOTE, REMOTE_DEVICES, State,
};
use crate::error::FleetError;
use crate::explain;
use crate::model::{Fleet, FleetPlan, LevelId, LevelValue, Locality, Objective, SearchRecord, VmPlacement};
use crate::pinned::{self, Pinning};
use crate::search::{Constructor, Order, Prefer, consolidate, finish, improve, order, settle};

/// Whether VMs are known at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrival {
    /// The whole list at once: any order, and improvement.
    #[default]
    Batch,
    /// One after the other as listed, without a look at those to come; nothing moves.
    Online,
}

/// How to search. The same fleet and options give the same plan, unless the budget ends the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Seed of the improvement.
    pub seed: u64,
    /// Steps of the improvement at most.
    pub steps: u64,
    /// Time after which no new step begins; `None`: only the steps count.
    pub budget: Option<Duration>,
    /// Whether VMs are known at once.
    pub arrival: Arrival,
}

impl Default for Options {
    /// 20,000 steps, 2 seconds.
    fn default() -> Self {
        Self { seed: 1, steps: 20_000, budget: Some(Duration::from_secs(2)), arrival: Arrival::Batch }
    }
}

/// Plans a fleet. Pure but for the clock, which is read only if there is a budget.
pub fn plan(fleet: &Fleet, options: &Options) -> Result<FleetPlan, FleetError> {
    let until = options.budget.map(|budget| Instant::now() + budget);
    let problem = Problem::new(fleet)?;
    let mut start = State::empty(&problem);
    let mut constructor = Constructor::new(&problem);
    keep_running(fleet, &mut start, &mut constructor)?;
    let mut state = start.clone();
    let mut record = SearchRecord { seed: options.seed, steps: options.steps, done: 0, stopped_early: false };
    let mut proven = false;
    match options.arrival {
        Arrival::Online => {
            constructor.place_as_asked(&mut state);
            record.steps = 0;
        }
        Arrival::Batch => {
            state = best_start(&problem, &start, &mut constructor);
            let target = target(&problem, &state.value);
            let (emptied, stopped) = consolidate(&mut state, &mut constructor, options.steps, until, &target);
            (record.done, record.stopped_early) = (emptied, stopped);
            if !stopped {
                let left = options.steps - emptied;
                let (done, stopped) = improve(&mut state, &mut constructor, options.seed, left, until, &target);
                (record.done, record.stopped_early) = (emptied + done, stopped);
            }
            // Neither looks at the clock or at the steps: so many steps give the same plan whatever ended them.
            proven = finish(&mut state, &mut constructor, &target);
            settle(&mut state, &mut constructor);
        }
    }
    let pinning = pinned::pin_all(fleet, &state);
    let objective = objective(&state, &pinning, proven);
    let mut plan = explain::write(fleet, &state, &mut constructor, &pinning);
    plan.headline = objective.headline();
    plan.objective = objective;
    plan.search = record;
    Ok(plan)
}

/// The best of some orders. Orders for what does not fit are tried only where something does not.
fn best_start<'a>(problem: &'a Problem, start: &State<'a>, constructor: &mut Constructor) -> State<'a> {
    let mut best: Option<(State<'a>, Prefer)> = None;
    let orders = [Order::Largest, Order::Widest, Order::Leanest];
    let ways = [Prefer::Levels, Prefer::Fit, Prefer::Room].into_iter();
    let ways = ways.flat_map(|prefer| orders.map(|order| (prefer, order)));
    for (prefer, kind) in ways {
        let done = |state: &State<'_>| state.value[..EXTRA].iter().all(|missing| *missing == 0);
        if best.as_ref().is_some_and(|(best, _)| done(best)) {
            break;
        }
        constructor.forget();
        constructor.finder.prefer = prefer;
        if prefer == Prefer::Room {
            constructor.learn(start, &vec![true; problem.shapes.len()]);
        }
        let mut state = start.clone();
        constructor.place_all(&mut state, &order(problem, kind), true);
        if best.as_ref().is_none_or(|(best, _)| state.value < best.value) {
            best = Some((state, constructor.finder.prefer));
        }
    }
    constructor.finder.prefer = best.as_ref().map_or(Prefer::Levels, |(_, prefer)| *prefer);
    constructor.forget();
    best.map_or_else(|| start.clone(), |(state, _)| state)
}

/// Puts VMs that run where they run: those that stay first, then those that only keep their host, then those that may be
/// moved, as far as their place still holds them.
fn keep_running(fleet: &Fleet, state: &mut State<'_>, constructor: &mut Constructor) -> Result<(), FleetError> {
    let running = || fleet.vms.iter().enumerate().filter_map(|(at, vm)| Some((at, vm, vm.current.as_ref()?)));
    for (index, vm, current) in running().filter(|(_, vm, _)| vm.kept().is_some()) {
        let assign = assign_of(fleet, state, index, current).map_err(|reason| FleetError::Current {
            vm: vm.name.clone(),
            host: current.host.clone(),
            reason,
        })?;
        state.put(index, assign);
    }
    for (index, ..) in running().filter(|(_, vm, current)| !vm.movable && current.cells.is_empty()) {
        if let Some(assign) = constructor.place_for(state, index, false) {
            state.put(index, assign);
        }
    }
    for (index, _, current) in running().filter(|(_, vm, current)| vm.movable && !current.cells.is_empty()) {
        if let Some(assign) =
            assign_of(fleet, state, index, current).ok().filter(|assign| suits(state, constructor, index, assign))
        {
            state.put(index, assign);
        }
    }
    constructor.forget();
    Ok(())
}

/// Whether the place of a VM that may be moved is one it could be given now: what it asks for may have changed since.
fn suits(state: &State<'_>, constructor: &mut Constructor, vm: usize, assign: &Assign) -> bool {
    let shape = state.problem.shape_of(vm);
    let host = assign.host as usize;
    constructor.allowed.prepare(state, vm);
    let allowed = shape.hosts.get(host).is_none_or(|allowed| *allowed)
        && constructor.allowed.host(host)
        && assign.pieces.iter().all(|piece| constructor.allowed.node(piece.node as usize));
    let even = match shape.cells {
        Cells::Free => shape.can_show(&assign.pieces),
        Cells::Fixed(count) => {
            let mut asked: Vec<(u32, u64)> = (0..count).map(|cell| shape.cell(cell, count)).collect();
            let mut there: Vec<(u32, u64)> = assign.pieces.iter().map(|piece| (piece.vcpus, piece.pages)).collect();
            asked.sort_unstable();
            there.sort_unstable();
            asked == there
        }
    };
    let served = (0u32..).zip(&shape.demands).all(|(at, demand)| {
        let grants = || assign.grants.iter().filter(|grant| grant.demand == at);
        let near = |grant: &Grant| state.slot_cost(host, &assign.pieces, grant.slot as usize) == 0;
        grants().map(|grant| grant.count).sum::<u32>() == demand.count
            && (demand.locality != Locality::Required || grants().all(near))
    });
    allowed && even && served
}

fn assign_of(fleet: &Fleet, state: &State<'_>, vm: usize, current: &VmPlacement) -> Result<Assign, String> {
    let problem = state.problem;
    let shape = problem.shape_of(vm);
    let host = fleet.hosts.iter().position(|host| host.name == current.host).ok_or("the fleet has no such host")?;
    let (supply, dense) = (&fleet.hosts[host], &problem.hosts[host]);
    let mut assign = Assign { host: host as u32, ..Assign::default() };
    for cell in &current.cells {
        let at = supply.nodes.iter().position(|node| node.index == cell.node);
        let at = at.ok_or_else(|| format!("it has no node {}", cell.node))?;
        let node = dense.first + at;
        let pages = cell.memory.get().div_ceil(problem.mib[shape.class] << 20);
        if assign.pieces.iter().any(|piece| piece.node as usize == node) {
            return Err(format!("node {} is named twice", cell.node));
        }
        let vcpus = if problem.vms[vm].held { 0 } else { cell.vcpus };
        if !state.fits(shape, node, vcpus, pages) {
            return Err(format!("node {} has no room for it beside the others", cell.node));
        }
        assign.pieces.push(Piece { node: node as u32, vcpus: cell.vcpus, pages });
    }
    let vcpus: u64 = assign.pieces.iter().map(|piece| u64::from(piece.vcpus)).sum();
    if vcpus != u64::from(shape.vcpus) || assign.pieces.iter().map(|piece| piece.pages).sum::<u64>() != shape.pages {
        return Err("its cells do not add up to its vCPUs and memory".to_owned());
    }
    for grant in &current.devices {
        let slot = dense.slots.start + grant.supply as usize;
        let known = shape.demands.get(grant.demand as usize).is_some() && dense.slots.contains(&slot);
        if !known || grant.count > state.slot_free[slot] {
            return Err(format!("device {} is not free there", grant.supply));
        }
        assign.grants.push(Grant { demand: grant.demand, slot: slot as u32, count: grant.count });
    }
    Ok(assign)
}

fn objective(state: &State<'_>, pinning: &Pinning, proven: bool) -> Objective {
    let (problem, value) = (state.problem, &state.value);
    let bound = if proven { *value } else { bound(problem, value) };
    let mut levels = Vec::new();
    for (index, priority) in problem.priorities.iter().enumerate() {
        let asked = problem.vms.iter().filter(|vm| vm.priority == index);
        let of = asked.map(|vm| u64::from(problem.shapes[vm.shape].vcpus)).sum();
        let level = LevelId::Unplaced { priority: *priority };
        // VMs that stay may be where no bound would have them.
        levels.push(LevelValue { level, value: value[index], bound: bound[index].min(value[index]), of: Some(of) });
    }
    let mut add = |level, value, bound: u64| levels.push(LevelValue { level, value, bound, of: None });
    add(LevelId::ExtraNodes, value[EXTRA], bound[EXTRA]);
    add(LevelId::RemoteMemory, value[REMOTE], bound[REMOTE]);
    add(LevelId::RemoteDevices, value[REMOTE_DEVICES], bound[REMOTE_DEVICES]);
    add(LevelId::Hosts, value[HOSTS], bound[HOSTS]);
    add(LevelId::SharedBandwidth, value[CROWDED], bound[CROWDED]);
    add(LevelId::BrokenNodes, value[NODES], bound[NODES]);
    // On several kinds of cores VMs may own more PUs than the search counts.
    let stranded = |(node, pinned): (usize, &crate::pin::Pinned)| {
        let shared = u32::try_from(state.uses[node].shared.div_ceil(MILLI)).unwrap_or(u32::MAX);
        state.stranded_with(node, pinned.free_pus.saturating_sub(shared))
    };
    add(LevelId::Stranded, pinning.nodes.iter().enumerate().map(stranded).sum(), 0);
    let all_placed = value[..EXTRA].iter().all(|missing| *missing == 0);
    let shared = if all_placed { shared_cores(problem, value[NODES]) } else { 0 };
    add(LevelId::SharedCores, pinning.shared_cores, shared);
    add(LevelId::ExtraL3, pinning.extra_l3, 0);
    Objective { levels }
}
