//! Rows of a plan's tables.

use std::collections::BTreeMap;

use nearmetal_fleet::{
    DeviceGrant, DeviceKind, DeviceSelector, Fleet, FleetHost, FleetPlan, Floating, LevelValue, Vm, VmPlacement,
};
use nearmetal_units::{Bytes, CpuSet, PageSize};

use crate::text::{count, grouped};

/// A VM with a place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlacedVm {
    pub(crate) vm: String,
    pub(crate) host: String,
    /// Host and nodes in words.
    pub(crate) place: String,
    /// Nodes, in the order of its cells.
    pub(crate) nodes: String,
    /// PUs of each cell; or that they float.
    pub(crate) pus: String,
    /// Memory and the pages it is in.
    pub(crate) memory: String,
    /// Devices it gets; empty if none.
    pub(crate) devices: String,
    /// Why here, a sentence each.
    pub(crate) reasons: Vec<String>,
    /// The next best place and what it would have cost.
    pub(crate) second: String,
    /// Where it runs now, if that is another place.
    pub(crate) from: Option<String>,
}

/// Pages to add to a pool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PoolRow {
    pub(crate) host: String,
    pub(crate) node: u32,
    pub(crate) size: PageSize,
    pub(crate) add: u64,
}

/// A level of the objective.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LevelRow {
    pub(crate) words: String,
    pub(crate) value: String,
    pub(crate) bound: String,
    pub(crate) proven: bool,
    /// `proven`, or how far it may be from the best.
    pub(crate) verdict: String,
}

/// VMs better left floating for one reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FloatingRow {
    pub(crate) reason: &'static str,
    pub(crate) vms: Vec<String>,
}

pub(crate) fn placed(fleet: &Fleet, plan: &FleetPlan) -> Vec<PlacedVm> {
    let asked: BTreeMap<&str, &Vm> = fleet.vms.iter().map(|vm| (vm.name.as_str(), vm)).collect();
    let hosts: BTreeMap<&str, &FleetHost> = fleet.hosts.iter().map(|host| (host.name.as_str(), host)).collect();
    let row = |placement: &VmPlacement| {
        let current = asked.get(placement.vm.as_str()).and_then(|vm| vm.current.as_ref());
        let from = current.filter(|current| !same_place(current, placement));
        PlacedVm {
            vm: placement.vm.clone(),
            host: placement.host.clone(),
            nodes: nodes(placement),
            pus: pus(placement),
            memory: memory(placement),
            devices: devices(placement, hosts.get(placement.host.as_str()).copied()),
            reasons: placement.reasons.clone(),
            second: second(placement),
            place: place(placement),
            from: from.map(place),
        }
    };
    plan.placements.iter().map(row).collect()
}

/// Whether two placements are on the same nodes of the same host.
pub(crate) fn same_place(one: &VmPlacement, other: &VmPlacement) -> bool {
    let on = |placement: &VmPlacement| placement.cells.iter().map(|cell| cell.node).collect::<Vec<_>>();
    one.host == other.host && on(one) == on(other)
}

/// `0`, or `0, 1`.
fn nodes(placement: &VmPlacement) -> String {
    let nodes: Vec<_> = placement.cells.iter().map(|cell| cell.node.to_string()).collect();
    nodes.join(", ")
}

/// `alpha node 0`, or `alpha nodes 0, 1`.
pub(crate) fn place(placement: &VmPlacement) -> String {
    format!("{} {}", placement.host, on_nodes(placement.cells.iter().map(|cell| cell.node)))
}

/// `node 0`, or `nodes 0, 1`.
fn on_nodes(nodes: impl Iterator<Item = u32>) -> String {
    let nodes: Vec<_> = nodes.map(|node| node.to_string()).collect();
    format!("{} {}", if nodes.len() == 1 { "node" } else { "nodes" }, nodes.join(", "))
}

fn pus(placement: &VmPlacement) -> String {
    let set = |pus: &[u32]| pus.iter().copied().collect::<CpuSet>().to_string();
    let cells = placement.cells.iter().map(|cell| match (cell.pus.is_empty(), cell.idle.is_empty()) {
        (true, _) if cell.vcpus == 0 => "memory only".to_owned(),
        (true, _) => format!("{} float", count(cell.vcpus as usize, "vCPU")),
        (false, true) => set(&cell.pus),
        (false, false) => format!("{} ({} idle)", set(&cell.pus), set(&cell.idle)),
    });
    let cells: Vec<_> = cells.collect();
    cells.join("; ")
}

fn memory(placement: &VmPlacement) -> String {
    let all = placement.cells.iter().fold(Bytes::ZERO, |sum, cell| sum.plus(cell.memory));
    match placement.page_size {
        Some(size) => format!("{all}, {size} pages"),
        None => all.to_string(),
    }
}

fn devices(placement: &VmPlacement, host: Option<&FleetHost>) -> String {
    let own: Vec<u32> = placement.cells.iter().map(|cell| cell.node).collect();
    let grants = placement.devices.iter().map(|grant| {
        let functions: Vec<_> = grant.functions.iter().map(ToString::to_string).collect();
        let which = match functions.is_empty() {
            true if grant.count > 1 => format!(" × {}", grant.count),
            true => String::new(),
            false => format!(" {}", functions.join(" ")),
        };
        let far = match grant.node {
            Some(node) if own.contains(&node) => String::new(),
            Some(node) => format!(" (on node {node})"),
            None => " (node unknown)".to_owned(),
        };
        format!("{}{which}{far}", device_name(grant, host))
    });
    let grants: Vec<_> = grants.collect();
    grants.join(", ")
}

/// What was given; where the host is not there to ask, what was asked for.
fn device_name(grant: &DeviceGrant, host: Option<&FleetHost>) -> String {
    if let Some(supply) = host.and_then(|host| host.devices.get(grant.supply as usize)) {
        return kind_words(&supply.kind);
    }
    match &grant.selector {
        DeviceSelector::VirtualFunction { of: Some(of) } => format!("VF of {of}"),
        DeviceSelector::VirtualFunction { of: None } => "VF".to_owned(),
        DeviceSelector::Id { vendor, device } => format!("{vendor:04x}:{device:04x}"),
        DeviceSelector::Class { class } => format!("class {class:04x}"),
        DeviceSelector::Function(address) => address.to_string(),
        DeviceSelector::Shared { name } => format!("{name} (shared)"),
    }
}

/// A kind of device, briefly.
pub(crate) fn kind_words(kind: &DeviceKind) -> String {
    match kind {
        DeviceKind::VirtualFunctions { of } => format!("VF of {of}"),
        DeviceKind::Function { vendor, device, .. } => format!("{vendor:04x}:{device:04x}"),
        DeviceKind::Shared { name } => format!("{name} (shared)"),
    }
}

fn second(placement: &VmPlacement) -> String {
    match &placement.second_best {
        None => "there was no other place".to_owned(),
        Some(other) => {
            let nodes = on_nodes(other.nodes.iter().copied());
            format!("{} {nodes}, at a cost of: {}", other.host, other.cost)
        }
    }
}

pub(crate) fn pools(plan: &FleetPlan) -> Vec<PoolRow> {
    let row = |change: &nearmetal_fleet::HostChange| PoolRow {
        host: change.host.clone(),
        node: change.node,
        size: change.size,
        add: change.add,
    };
    plan.pools.iter().map(row).collect()
}

pub(crate) fn levels(plan: &FleetPlan) -> Vec<LevelRow> {
    plan.objective.levels.iter().map(level).collect()
}

fn level(level: &LevelValue) -> LevelRow {
    let of = level.of.map(|of| format!(" of {}", grouped(of as f64))).unwrap_or_default();
    let verdict = match level.gap_percent() {
        None => "proven".to_owned(),
        Some(gap) if gap.is_finite() => format!("gap at most {gap:.1} %"),
        Some(_) => "not proven".to_owned(),
    };
    LevelRow {
        words: level.level.words(),
        value: format!("{}{of}", grouped(level.value as f64)),
        bound: grouped(level.bound as f64),
        proven: level.is_proven(),
        verdict,
    }
}

pub(crate) fn floating(plan: &FleetPlan) -> Vec<FloatingRow> {
    let kinds = [Floating::Density, Floating::Overcommitted, Floating::AloneAndSmall];
    let row = |kind: Floating| {
        let vms = plan.placements.iter().filter(|placement| placement.floating == Some(kind));
        FloatingRow { reason: kind.reason(), vms: vms.map(|placement| placement.vm.clone()).collect() }
    };
    kinds.into_iter().map(row).filter(|row| !row.vms.is_empty()).collect()
}

pub(crate) fn search(plan: &FleetPlan) -> Vec<String> {
    let search = &plan.search;
    let (done, steps) = (grouped(search.done as f64), grouped(search.steps as f64));
    let mut lines = vec![match (search.steps, search.stopped_early) {
        (0, _) => format!("seed {}, no steps of improvement", search.seed),
        (_, true) => format!("seed {}, {done} of {steps} steps: the time budget ended it", search.seed),
        (_, false) if search.done == search.steps => format!("seed {}, all {steps} steps", search.seed),
        (_, false) => format!("seed {}, {done} of {steps} steps: nothing was left to improve", search.seed),
    }];
    lines.push(format!(
        "to get this plan again: the same fleet, seed {}, {} steps, no time budget",
        search.seed, search.done
    ));
    if search.stopped_early {
        lines.push("more time or more steps may give a better plan".to_owned());
    }
    lines
}
