//! From the fleet planner's answer to a plan for every host: definitions written or edited, pools with their counts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};
use nearmetal_change::{
    FLEET_PLAN_SCHEMA, FleetPlanFile, HostPart, Reach, Seat, Starting, compose_from, follow_rules, now, placement_of,
};
use nearmetal_fleet::file::{DemandOf, FleetFile, VmEntry};
use nearmetal_fleet::{Action, DeviceDemand, DeviceSelector, Fleet, FleetPlan, Step, VmPlacement, steps};
use nearmetal_host::Host;
use nearmetal_place::{GuestRequest, Plan, Policy, PoolChange};
use nearmetal_units::{CpuSet, MacAddress, PageSize, VlanId};

use super::definition;
use super::hosts::ReadHost;
use crate::guest_request::{Paths, guest_request};

/// The whole plan as a file. Hosts on which nothing is placed are left out. `beside`: the directory templates count from.
pub(crate) fn fleet_plan_file(
    file: &FleetFile,
    fleet: &Fleet,
    hosts: &[ReadHost],
    plan: &FleetPlan,
    beside: &Path,
) -> anyhow::Result<FleetPlanFile> {
    let (mut parts, elsewhere) = (Vec::new(), defined_elsewhere(file, hosts, plan));
    let way = moves(fleet, plan)?;
    for host in hosts {
        if let Some(part) =
            host_part(file, fleet, host, plan, &elsewhere, beside).with_context(|| format!("host `{}`", host.name))?
        {
            parts.push(part);
        }
    }
    Ok(FleetPlanFile {
        schema: FLEET_PLAN_SCHEMA.to_owned(),
        created: now(),
        nearmetal: env!("CARGO_PKG_VERSION").to_owned(),
        fleet: plan.clone(),
        steps: way,
        hosts: parts,
    })
}

/// The steps that VMs which run take on their way to the plan; those that merely start are no part of a way.
pub(crate) fn moves(fleet: &Fleet, plan: &FleetPlan) -> anyhow::Result<Vec<Step>> {
    if fleet.vms.iter().all(|vm| vm.current.is_none()) {
        return Ok(Vec::new());
    }
    let way = steps(fleet, plan)?;
    let down = |step: &Step| way.shut_down.contains(&step.vm);
    Ok(way.steps.iter().filter(|step| down(step) || !matches!(step.action, Action::Start { .. })).cloned().collect())
}

/// VMs that are placed on one host and defined on another: (VM, where it is defined, where it goes). Defining them a second
/// time would make two guests of one disk.
pub(crate) fn defined_elsewhere(file: &FleetFile, hosts: &[ReadHost], plan: &FleetPlan) -> Vec<[String; 3]> {
    let defined = |vm: &str, on: &dyn Fn(&str) -> bool| {
        let entry = file.vm(vm)?;
        hosts.iter().find(|host| on(&host.name) && definition::find(entry, host).is_some())
    };
    let of = |planned: &VmPlacement| {
        let there = defined(&planned.vm, &|name| name == planned.host);
        let other = defined(&planned.vm, &|name| name != planned.host);
        let from = other.filter(|_| there.is_none())?.name.clone();
        Some([planned.vm.clone(), from, planned.host.clone()])
    };
    plan.placements.iter().filter_map(of).collect()
}

fn host_part(
    file: &FleetFile,
    fleet: &Fleet,
    read: &ReadHost,
    plan: &FleetPlan,
    elsewhere: &[[String; 3]],
    beside: &Path,
) -> anyhow::Result<Option<HostPart>> {
    let own: Vec<&VmPlacement> = plan.placements.iter().filter(|planned| planned.host == read.name).collect();
    let unowned = unowned(fleet, &read.name, &own);
    let own: Vec<&VmPlacement> =
        own.into_iter().filter(|planned| !elsewhere.iter().any(|[vm, ..]| *vm == planned.vm)).collect();
    if own.is_empty() {
        return Ok(None);
    }
    let here = read.reach == Reach::Local;
    let policy = Policy::default();
    let (mut placements, mut starting) = (Vec::new(), Vec::new());
    for planned in own.iter().copied() {
        // A plan names what the fleet has: it was made from it.
        let Some(entry) = file.vm(&planned.vm) else {
            bail!("the plan places `{}`, but the fleet file does not list it", planned.vm)
        };
        let work = || -> anyhow::Result<(GuestRequest, Starting)> {
            let (start, facts) = definition::of(entry, planned, read, beside)?;
            Ok((guest_request(facts, entry.vm.class, &Paths { host: &read.host, here }), start))
        };
        let (request, start) = work().with_context(|| format!("VM `{}`", planned.vm))?;
        let networks = networks(entry);
        let planned = &without_pooled(entry, planned);
        let seat = Seat {
            host: &read.host,
            vm: &entry.vm,
            planned,
            request: &request,
            unowned: &unowned,
            networks: &networks,
            policy: &policy,
        };
        placements.push(placement_of(&seat));
        starting.push(start);
    }
    let pools = pools(&read.host, &read.name, &own, plan);
    let host_plan = Plan { placements, pools, blocked: Vec::new() };
    let mut plan = compose_from(&read.host, &host_plan, &starting)?;
    // Of the class that the host's own doctor will see: the fleet file's is in the definitions it makes.
    follow_rules(&mut plan, &read.host, &BTreeMap::new(), &[])?;
    Ok(Some(HostPart { name: read.name.clone(), reach: read.reach.clone(), plan }))
}

/// PUs of each node that no VM of the fleet owns: those that were free, without the pinned and the idle ones.
fn unowned(fleet: &Fleet, host: &str, own: &[&VmPlacement]) -> BTreeMap<u32, CpuSet> {
    let Some(supply) = fleet.hosts.iter().find(|supply| supply.name == host) else { return BTreeMap::new() };
    let cells = own.iter().flat_map(|planned| &planned.cells);
    let owned: CpuSet = cells.flat_map(|cell| cell.pus.iter().chain(&cell.idle).copied()).collect();
    let free = |node: &nearmetal_fleet::NodeSupply| -> CpuSet {
        node.cores.iter().flat_map(|core| core.free.iter().copied()).filter(|pu| !owned.contains(*pu)).collect()
    };
    supply.nodes.iter().map(|node| (node.index, free(node))).collect()
}

/// A place without the functions that a network of libvirt deals when the VM starts: the plan counts those, and libvirt
/// says which.
fn without_pooled(entry: &VmEntry, planned: &VmPlacement) -> VmPlacement {
    let pooled: BTreeSet<u32> = (0..)
        .zip(entry.demands())
        .filter_map(|(number, (from, _))| match from {
            DemandOf::Nic(at) => entry.nics.get(at)?.function_pool().map(|_| number),
            _ => None,
        })
        .collect();
    let mut planned = planned.clone();
    planned.devices.retain(|grant| !pooled.contains(&grant.demand));
    planned
}

/// Address and VLAN of virtual functions that are network interfaces, by the demand they are.
fn networks(entry: &VmEntry) -> BTreeMap<u32, (Option<MacAddress>, Option<VlanId>)> {
    let of = |(number, (from, demand)): (u32, (DemandOf, DeviceDemand))| {
        let DemandOf::Nic(at) = from else { return None };
        let nic = entry.nics.get(at)?;
        let is_function = matches!(demand.selector, DeviceSelector::VirtualFunction { .. });
        let mac = nic.mac.as_deref().and_then(|mac| mac.parse().ok());
        let vlan = nic.vlan.and_then(|vlan| VlanId::try_from(vlan).ok());
        is_function.then_some((number, (mac, vlan)))
    };
    (0..).zip(entry.demands()).filter_map(of).collect()
}

/// Pools the host's VMs rest on, with the pages the plan adds.
fn pools(host: &Host, name: &str, own: &[&VmPlacement], plan: &FleetPlan) -> Vec<PoolChange> {
    let mut wanted: BTreeMap<(u32, PageSize), u64> = BTreeMap::new();
    for planned in own {
        if let Some(size) = planned.page_size {
            let nodes = planned.cells.iter().filter(|cell| cell.memory.get() > 0).map(|cell| cell.node);
            nodes.for_each(|node| {
                wanted.entry((node, size)).or_default();
            });
        }
    }
    for change in plan.pools.iter().filter(|change| change.host == name) {
        *wanted.entry((change.node, change.size)).or_default() += change.add;
    }
    let before = |node: u32, size: PageSize| {
        let pool = host.node(node).and_then(|node| node.pools.iter().find(|pool| pool.size == size));
        pool.map_or(0, |pool| pool.persistent())
    };
    wanted
        .into_iter()
        .map(|((node, size), add)| {
            let before = before(node, size);
            PoolChange { node, size, before, after: before.saturating_add(add) }
        })
        .collect()
}
