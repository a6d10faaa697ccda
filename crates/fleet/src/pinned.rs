//! PUs of all nodes, and what they cost.

use std::collections::{BTreeMap, BTreeSet};

use crate::dense::State;
use crate::model::{CoreSupply, Fleet, NodeSupply, SmtPolicy};
use crate::pin::{Guest, Pinned, Pins, is_enough, pin};

/// PUs of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Pinning {
    /// By node of the fleet; nodes without VMs are there too.
    pub(crate) nodes: Vec<Pinned>,
    pub(crate) shared_cores: u64,
    pub(crate) extra_l3: u64,
}

pub(crate) fn pin_all(fleet: &Fleet, state: &State<'_>) -> Pinning {
    let problem = state.problem;
    let mut guests: BTreeMap<u32, Vec<Guest>> = BTreeMap::new();
    for (vm, assign) in state.assigns.iter().enumerate() {
        let Some(assign) = assign else { continue };
        let kind = problem.shape_of(vm).kind;
        for piece in assign.pieces.iter().filter(|piece| piece.vcpus > 0) {
            let held = held(fleet, state, vm, piece.node);
            let fast = fleet.vms[vm].class == nearmetal_place::WorkloadClass::Latency;
            let guest = Guest { vm, vcpus: piece.vcpus, smt: kind.smt, sharing: kind.sharing, fast, held };
            guests.entry(piece.node).or_default().push(guest);
        }
    }
    let mut pinning = Pinning::default();
    let mut node = 0;
    for host in &fleet.hosts {
        for supply in &host.nodes {
            let there = guests.get(&node).map_or(&[][..], Vec::as_slice);
            let mut pinned = pin(supply, there);
            // Who may move and is to stay on its nodes keeps its PUs too, unless others do worse for it.
            let kept = keeping(fleet, state, node, supply, there);
            if kept.iter().zip(there).any(|(kept, guest)| kept.held != guest.held) {
                let still = pin(supply, &kept);
                let value = |pinned: &Pinned| (pinned.mixed, pinned.shared_cores, pinned.extra_l3);
                let as_good = value(&still) <= value(&pinned);
                if as_good && is_enough(&still, &kept) {
                    pinned = still;
                }
            }
            pinning.shared_cores += pinned.shared_cores;
            pinning.extra_l3 += pinned.extra_l3;
            pinning.nodes.push(pinned);
            node += 1;
        }
    }
    pinning
}

/// The guests of a node, with the PUs of those that may move and do not.
fn keeping(fleet: &Fleet, state: &State<'_>, node: u32, supply: &NodeSupply, guests: &[Guest]) -> Vec<Guest> {
    let keep = |guest: &Guest| {
        let dedicated = guest.sharing == crate::model::CpuSharing::Dedicated;
        let held = current_pins(fleet, state, guest.vm, node).filter(|pins| pins.pus.len() == guest.vcpus as usize);
        let held = held.filter(|pins| suits(supply, guest.smt, pins));
        Guest { held: guest.held.clone().or(held.filter(|_| dedicated)), ..guest.clone() }
    };
    guests.iter().map(keep).collect()
}

/// Whether PUs a VM happens to have are such as it asks for. One that may move is not left on others.
fn suits(supply: &NodeSupply, smt: SmtPolicy, pins: &Pins) -> bool {
    let mine: BTreeSet<u32> = pins.pus.iter().chain(&pins.idle).copied().collect();
    let touched = || supply.cores.iter().filter(|core| core.free.iter().any(|pu| mine.contains(pu)));
    let count =
        |core: &CoreSupply, among: &dyn Fn(&u32) -> bool| core.free.iter().filter(|pu| among(pu)).count() as u32;
    let to_be_had: usize = touched().map(|core| count(core, &|pu| mine.contains(pu)) as usize).sum();
    let is_whole = |core: &CoreSupply| count(core, &|pu| mine.contains(pu)) == core.threads;
    let one_each = |core: &CoreSupply| count(core, &|pu| pins.pus.contains(pu)) == 1;
    to_be_had == mine.len()
        && match smt {
            SmtPolicy::Isolate => touched().all(|core| is_whole(core) && one_each(core)),
            SmtPolicy::Require => pins.idle.is_empty() && touched().all(|core| core.threads > 1 && is_whole(core)),
            SmtPolicy::Prefer | SmtPolicy::None => pins.idle.is_empty(),
        }
}

/// PUs a VM that stays has on a node.
fn held(fleet: &Fleet, state: &State<'_>, vm: usize, node: u32) -> Option<Pins> {
    if !state.problem.vms[vm].held {
        return None;
    }
    current_pins(fleet, state, vm, node)
}

/// PUs a VM has on a node now.
fn current_pins(fleet: &Fleet, state: &State<'_>, vm: usize, node: u32) -> Option<Pins> {
    let host = state.problem.node_host[node as usize] as usize;
    let index = fleet.hosts[host].nodes[node as usize - state.problem.hosts[host].first].index;
    let current = fleet.vms[vm].current.as_ref().filter(|current| current.host == fleet.hosts[host].name)?;
    let cell = current.cells.iter().find(|cell| cell.node == index)?;
    Some(Pins { pus: cell.pus.clone(), idle: cell.idle.clone() })
}
