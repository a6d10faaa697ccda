//! A finished search in the words and numbers of a plan.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, CpuSet, PciAddress};

use crate::dense::{Assign, Grant, KERNEL, State};
use crate::model::{
    CellPlacement, CpuSharing, DeviceGrant, DeviceKind, Fleet, FleetPlan, Floating, Fragmentation, HostChange,
    Objective, SearchRecord, VmPlacement,
};
use crate::pinned::Pinning;
use crate::search::Constructor;
use crate::{remedy, runner_up};

/// A VM alone on its host is far smaller than a node below this part of its PUs.
const SMALL_PART: u32 = 4;

/// The plan, but for objective, headline and search record.
pub(crate) fn write(fleet: &Fleet, state: &State<'_>, constructor: &mut Constructor, pinning: &Pinning) -> FleetPlan {
    let mut functions = Functions::of(fleet, state);
    let problem = state.problem;
    // Functions of VMs that stay are nobody else's.
    let kept = fleet.vms.iter().filter_map(|vm| vm.kept());
    let kept: BTreeSet<(&str, PciAddress)> = kept
        .flat_map(|place| place.devices.iter().map(move |grant| (place.host.as_str(), &grant.functions)))
        .flat_map(|(host, functions)| functions.iter().map(move |function| (host, *function)))
        .collect();
    for (host, dense) in fleet.hosts.iter().zip(&problem.hosts) {
        for (slot, supply) in dense.slots.clone().zip(&host.devices) {
            let is_kept = |function: &PciAddress| kept.contains(&(host.name.as_str(), *function));
            let left = functions.left.entry(slot as u32).or_insert_with(|| supply.functions.clone());
            left.retain(|function| !is_kept(function));
        }
    }
    let mut placements = Vec::new();
    let mut second = runner_up::Search::new(state);
    for (vm, assign) in state.assigns.iter().enumerate() {
        let Some(assign) = assign else { continue };
        let mut placement = placement(fleet, state, pinning, vm, assign, &mut functions);
        placement.second_best = second.of(fleet, state, constructor, vm);
        placement.reasons = reasons(fleet, state, vm, assign, &placement);
        placements.push(placement);
    }
    let refusals = remedy::refusals(fleet, state, constructor);
    let mut assumptions = Vec::new();
    for host in &fleet.hosts {
        assumptions.extend(host.unknown.iter().map(|unknown| format!("{}: {unknown}", host.name)));
    }
    if problem.members.iter().any(|members| members.len() > 1) {
        assumptions.push("second-best places keep to the groups' rules as the other VMs are placed".to_owned());
    }
    FleetPlan {
        placements,
        refusals,
        pools: pools(fleet, state),
        objective: Objective::default(),
        headline: String::new(),
        fragmentation: fragmentation(fleet, state, pinning),
        search: SearchRecord { seed: 0, steps: 0, done: 0, stopped_early: false },
        assumptions,
    }
}

fn placement(
    fleet: &Fleet,
    state: &State<'_>,
    pinning: &Pinning,
    vm: usize,
    assign: &Assign,
    functions: &mut Functions,
) -> VmPlacement {
    let problem = state.problem;
    let (asked, host) = (&fleet.vms[vm], &fleet.hosts[assign.host as usize]);
    let dense = &problem.hosts[assign.host as usize];
    let shape = problem.shape_of(vm);
    // What was rounded up to whole pages or MiB is rounded up here too: it is what will be taken.
    let page = problem.mib[shape.class] << 20;
    let cells: Vec<CellPlacement> = assign
        .pieces
        .iter()
        .map(|piece| {
            let pins = pinning.nodes[piece.node as usize].guests.get(&vm).cloned().unwrap_or_default();
            CellPlacement {
                node: host.nodes[piece.node as usize - dense.first].index,
                vcpus: piece.vcpus,
                pus: pins.pus,
                idle: pins.idle,
                memory: Bytes::new(piece.pages * page),
            }
        })
        .collect();
    let mut devices = Vec::new();
    for grant in &assign.grants {
        let at = grant.slot as usize - dense.slots.start;
        let supply = &host.devices[at];
        let own = match supply.kind {
            DeviceKind::Shared { .. } => Vec::new(),
            _ => functions.give(vm, grant),
        };
        devices.push(DeviceGrant {
            demand: grant.demand,
            selector: asked.devices[grant.demand as usize].selector.clone(),
            supply: at as u32,
            count: grant.count,
            functions: own,
            node: supply.node.and_then(|node| host.nodes.get(node as usize)).map(|node| node.index),
        });
    }
    if let Some(current) = asked.kept() {
        devices.clone_from(&current.devices);
    }
    VmPlacement {
        vm: asked.name.clone(),
        host: host.name.clone(),
        helpers: helpers(state, host, assign),
        cells,
        page_size: asked.page_size,
        devices,
        floating: floating(fleet, state, vm, assign),
        reasons: Vec::new(),
        second_best: None,
    }
}

/// Functions of each slot that nobody has, and those that VMs which run keep.
struct Functions {
    kept: BTreeMap<(usize, u32, u32), Vec<PciAddress>>,
    left: BTreeMap<u32, Vec<PciAddress>>,
}

impl Functions {
    fn of(fleet: &Fleet, state: &State<'_>) -> Self {
        let mut functions = Self { kept: BTreeMap::new(), left: BTreeMap::new() };
        for (vm, assign) in state.assigns.iter().enumerate() {
            let Some(assign) = assign else { continue };
            let host = &fleet.hosts[assign.host as usize];
            let first = state.problem.hosts[assign.host as usize].slots.start;
            for grant in &assign.grants {
                let at = grant.slot as usize - first;
                let all = functions.left.entry(grant.slot).or_insert_with(|| host.devices[at].functions.clone());
                let current = fleet.vms[vm].current.iter().filter(|current| current.host == host.name);
                let had = current.flat_map(|current| &current.devices).filter(|had| had.supply as usize == at);
                let had = had.filter(|had| had.demand == grant.demand).flat_map(|had| had.functions.iter().copied());
                let kept: Vec<PciAddress> = had.filter(|had| all.contains(had)).take(grant.count as usize).collect();
                all.retain(|function| !kept.contains(function));
                functions.kept.insert((vm, grant.demand, grant.slot), kept);
            }
        }
        functions
    }

    fn give(&mut self, vm: usize, grant: &Grant) -> Vec<PciAddress> {
        let mut own = self.kept.remove(&(vm, grant.demand, grant.slot)).unwrap_or_default();
        let missing = (grant.count as usize).saturating_sub(own.len());
        if let Some(left) = self.left.get_mut(&grant.slot) {
            own.extend(left.drain(..missing.min(left.len())));
        }
        own
    }
}

/// The housekeeping PUs nearest to the VM's first node; on that node's if it has any.
fn helpers(state: &State<'_>, host: &crate::model::FleetHost, assign: &Assign) -> CpuSet {
    let dense = &state.problem.hosts[assign.host as usize];
    let Some(first) = assign.pieces.first() else { return CpuSet::new() };
    let around = state.problem.near(assign.host as usize).around(first.node as usize - dense.first);
    let sets = around.iter().map(|at| &host.nodes[usize::from(*at)].housekeeping);
    sets.into_iter().find(|set| !set.is_empty()).cloned().unwrap_or_default()
}

fn floating(fleet: &Fleet, state: &State<'_>, vm: usize, assign: &Assign) -> Option<Floating> {
    let asked = &fleet.vms[vm];
    if asked.class == WorkloadClass::Density {
        return Some(Floating::Density);
    }
    if asked.sharing() != CpuSharing::Dedicated {
        return Some(Floating::Overcommitted);
    }
    let plain = matches!(asked.class, WorkloadClass::General | WorkloadClass::Windows) && asked.devices.is_empty();
    let pus: u32 = assign.pieces.iter().map(|piece| state.problem.nodes[piece.node as usize].pus()).sum();
    let alone = state.host_vms[assign.host as usize] == 1 && asked.vcpus * SMALL_PART <= pus;
    (plain && alone).then_some(Floating::AloneAndSmall)
}

impl Floating {
    /// Why, in a sentence.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Density => "do not pin: many guests of class density on few PUs run better where they float",
            Self::Overcommitted => {
                "do not pin: its vCPUs share PUs with others, and only the scheduler sees who is idle"
            }
            Self::AloneAndSmall => {
                "do not pin: it is alone on its host and far smaller than its node, where nothing disturbs it; \
                 the PUs given are a candidate to measure against"
            }
        }
    }
}

fn reasons(fleet: &Fleet, state: &State<'_>, vm: usize, assign: &Assign, placement: &VmPlacement) -> Vec<String> {
    let problem = state.problem;
    let mut reasons = Vec::new();
    if problem.vms[vm].fixed {
        reasons.push(match fleet.vms[vm].kept() {
            Some(_) => "it runs here and may not be moved".to_owned(),
            None => "it runs on this host and may not be moved to another one".to_owned(),
        });
    }
    let nodes: Vec<String> = placement.cells.iter().map(|cell| cell.node.to_string()).collect();
    reasons.push(match (nodes.len(), fleet.vms[vm].numa) {
        (1, _) => format!("node {} holds all its vCPUs and memory", nodes[0]),
        (count, crate::model::GuestNuma::Cells(_)) => {
            format!("nodes {}: one for each of its {count} cells", nodes.join(", "))
        }
        (count, _) => {
            format!("nodes {}: no node has room for it; {count} that are near each other do", nodes.join(", "))
        }
    });
    let worth = state.worth(problem.shape_of(vm), assign);
    if worth[crate::dense::REMOTE_DEVICES] > 0 {
        let node = |grant: &DeviceGrant| grant.node.map_or("an unknown node".to_owned(), |node| format!("node {node}"));
        let far: Vec<String> = placement.devices.iter().map(node).collect();
        reasons.push(format!("not all its devices are on its nodes: they are on {}", far.join(", ")));
    } else if !placement.devices.is_empty() {
        reasons.push("its devices are as near as it asked".to_owned());
    }
    let kinds = |cell: &CellPlacement| {
        let node = fleet.hosts[assign.host as usize].nodes.iter().find(|node| node.index == cell.node);
        let several = node.filter(|node| node.cores.iter().any(|core| core.kind > 0));
        let cores = several.into_iter().flat_map(|node| &node.cores);
        let own = cores.filter(|core| core.free.iter().any(|pu| cell.pus.contains(pu))).map(|core| core.kind);
        own.collect::<std::collections::BTreeSet<u32>>().len()
    };
    if placement.cells.iter().any(|cell| kinds(cell) > 1) {
        reasons.push("its vCPUs are on cores of several kinds: no kind had enough left".to_owned());
    }
    reasons.extend(placement.floating.map(|floating| floating.reason().to_owned()));
    reasons
}

/// Pages to add to pools that may grow.
fn pools(fleet: &Fleet, state: &State<'_>) -> Vec<HostChange> {
    let problem = state.problem;
    let mut changes = Vec::new();
    for (node, used) in state.uses.iter().enumerate() {
        for (class, size) in problem.sizes.iter().enumerate() {
            let Some(size) = size else { continue };
            let add = used.pages[class].saturating_sub(problem.nodes[node].pages[class]);
            if add > 0 {
                let host = problem.node_host[node] as usize;
                let index = fleet.hosts[host].nodes[node - problem.hosts[host].first].index;
                changes.push(HostChange { host: fleet.hosts[host].name.clone(), node: index, size: *size, add });
            }
        }
    }
    changes
}

fn fragmentation(fleet: &Fleet, state: &State<'_>, pinning: &Pinning) -> Vec<Fragmentation> {
    let problem = state.problem;
    let mut all = Vec::with_capacity(problem.nodes.len());
    for (node, cap) in problem.nodes.iter().enumerate() {
        let (used, pinned) = (&state.uses[node], &pinning.nodes[node]);
        let host = problem.node_host[node] as usize;
        let supply = &fleet.hosts[host].nodes[node - problem.hosts[host].first];
        let kernel = cap.free_pages(used, KERNEL, &problem.mib);
        let free_pages =
            problem.sizes.iter().enumerate().filter_map(|(class, size)| {
                size.map(|size| (size, cap.pages[class].saturating_sub(used.pages[class])))
            });
        let free_pages: Vec<_> = free_pages.collect();
        // Floating vCPUs own no PU, and still leave none to others.
        let free_pus = cap.free_pus(used).unwrap_or(0).min(pinned.free_pus);
        let memory = kernel > 0 || free_pages.iter().any(|(_, pages)| *pages > 0);
        let stranded = match (free_pus, memory) {
            (0, true) => Some(format!("{} of memory but no PU", Bytes::from_mib(kernel))),
            (1.., false) => Some(format!("{free_pus} PUs but no memory")),
            _ => None,
        };
        all.push(Fragmentation {
            host: fleet.hosts[host].name.clone(),
            node: supply.index,
            pus: supply.cores.iter().map(|core| core.free.len() as u32).sum(),
            free_pus,
            free_cores: pinned.free_cores,
            largest_l3: pinned.largest_l3,
            free_memory: Bytes::from_mib(kernel),
            free_pages,
            stranded,
        });
    }
    all
}
