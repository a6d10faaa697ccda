//! PUs of all nodes, and what they cost.

use std::collections::BTreeMap;

use crate::dense::State;
use crate::model::Fleet;
use crate::pin::{Guest, Pinned, Pins, pin};

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
            let guest = Guest { vm, vcpus: piece.vcpus, smt: kind.smt, sharing: kind.sharing, held };
            guests.entry(piece.node).or_default().push(guest);
        }
    }
    let mut pinning = Pinning::default();
    let mut node = 0;
    for host in &fleet.hosts {
        for supply in &host.nodes {
            let pinned = pin(supply, guests.get(&node).map_or(&[], Vec::as_slice));
            pinning.shared_cores += pinned.shared_cores;
            pinning.extra_l3 += pinned.extra_l3;
            pinning.nodes.push(pinned);
            node += 1;
        }
    }
    pinning
}

/// PUs a VM that stays has on a node.
fn held(fleet: &Fleet, state: &State<'_>, vm: usize, node: u32) -> Option<Pins> {
    if !state.problem.vms[vm].held {
        return None;
    }
    let host = state.problem.node_host[node as usize] as usize;
    let index = fleet.hosts[host].nodes[node as usize - state.problem.hosts[host].first].index;
    let cell = fleet.vms[vm].current.as_ref()?.cells.iter().find(|cell| cell.node == index)?;
    Some(Pins { pus: cell.pus.clone(), idle: cell.idle.clone() })
}
