//! A fleet's plan as reports show it: rows of words for the terminal and the page, sheets of hosts for the pictures.
//!
//! Everything is made from the fleet, its plan and, for pictures, the hosts' models and ledgers; nothing is decided here.

mod alike;
mod compare;
mod maker;
mod owners;
mod refused;
mod rows;
mod sheet;
mod supply;
mod totals;

use std::collections::BTreeMap;

use nearmetal_fleet::{Fleet, FleetPlan};

pub(crate) use alike::{Alike, alike};
pub(crate) use compare::{Difference, difference};
pub(crate) use owners::{OwnerKind, SheetOwner};
pub(crate) use refused::{RefusedVm, alike_refused, reasons};
pub(crate) use rows::{FloatingRow, LevelRow, PlacedVm, PoolRow};
pub(crate) use sheet::{HostSheet, PuUse, SheetDevice, SheetMemory, SheetNode, SheetPu};
pub(crate) use totals::{HostTile, NodeRow, Totals};

/// A plan in words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FleetView {
    /// The objective in a line.
    pub(crate) headline: String,
    /// Counts of the whole fleet.
    pub(crate) totals: Totals,
    /// Placed VMs, in the order asked.
    pub(crate) placed: Vec<PlacedVm>,
    /// VMs without a place, in the order asked.
    pub(crate) refused: Vec<RefusedVm>,
    /// Pools to grow first.
    pub(crate) pools: Vec<PoolRow>,
    /// The objective, the most important level first.
    pub(crate) levels: Vec<LevelRow>,
    /// What is left of each node, in the order of the plan.
    pub(crate) nodes: Vec<NodeRow>,
    /// VMs better not pinned, by reason.
    pub(crate) floating: Vec<FloatingRow>,
    /// How it was searched, a sentence each.
    pub(crate) search: Vec<String>,
    /// What was taken as given, a sentence each.
    pub(crate) assumptions: Vec<String>,
    /// Hosts in the order of the fleet.
    pub(crate) hosts: Vec<HostTile>,
}

impl FleetView {
    pub(crate) fn new(fleet: &Fleet, plan: &FleetPlan) -> Self {
        Self {
            headline: plan.headline.clone(),
            totals: totals::totals(fleet, plan),
            placed: rows::placed(fleet, plan),
            refused: refused::refused(fleet, plan),
            pools: rows::pools(plan),
            levels: rows::levels(plan),
            nodes: totals::nodes(fleet, plan),
            floating: rows::floating(plan),
            search: rows::search(plan),
            assumptions: plan.assumptions.clone(),
            hosts: totals::hosts(fleet, plan),
        }
    }

    /// Nodes by how much of them is stranded, the worst first, and how many others each stands for: those with the same
    /// left of the same. Those with nothing stranded are left out.
    pub(crate) fn stranded(&self) -> Vec<(&NodeRow, usize)> {
        let mut at = BTreeMap::new();
        let mut nodes: Vec<(&NodeRow, usize)> = Vec::new();
        for node in self.nodes.iter().filter(|node| node.stranded.is_some()) {
            let pus = (node.pus, node.free_pus, node.free_cores, node.largest_l3);
            let key = (pus, node.memory, node.free_memory, &node.pages, &node.stranded);
            match at.get(&key) {
                Some(known) => {
                    let group: &mut (&NodeRow, usize) = &mut nodes[*known];
                    group.1 += 1;
                }
                None => {
                    at.insert(key, nodes.len());
                    nodes.push((node, 0));
                }
            }
        }
        nodes.sort_by(|(one, _), (other, _)| other.stranded_part.total_cmp(&one.stranded_part));
        nodes
    }
}
