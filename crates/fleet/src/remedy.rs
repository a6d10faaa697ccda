//! For each VM without a place: why, and the one smallest change that would place it.

use std::collections::BTreeMap;

use crate::dense::{Cells, Shape, State};
use crate::model::{DeviceSelector, Fleet, Locality, Refusal, Remedy};
use crate::search::Constructor;

/// A single lack on a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Lack {
    /// In thousandths of what the VM asks for of it.
    part: u64,
    host: usize,
    change: String,
}

/// Refusals of all VMs that are not placed. VMs that ask for the same share the answer.
pub(crate) fn refusals(fleet: &Fleet, state: &State<'_>, constructor: &mut Constructor) -> Vec<Refusal> {
    let problem = state.problem;
    let mut known: BTreeMap<usize, (String, Option<Remedy>)> = BTreeMap::new();
    let mut refusals = Vec::new();
    for (vm, asked) in fleet.vms.iter().enumerate().filter(|(vm, _)| !state.is_placed(*vm)) {
        let shape = problem.vms[vm].shape;
        let alone = problem.vms[vm].groups.is_empty();
        let (reason, remedy) = match known.get(&shape).filter(|_| alone) {
            Some(answer) => answer.clone(),
            None => answer(fleet, state, constructor, vm),
        };
        if alone {
            known.insert(shape, (reason.clone(), remedy.clone()));
        }
        refusals.push(Refusal { vm: asked.name.clone(), reason, remedy });
    }
    refusals
}

fn answer(fleet: &Fleet, state: &State<'_>, constructor: &mut Constructor, vm: usize) -> (String, Option<Remedy>) {
    let problem = state.problem;
    let shape = problem.shape_of(vm);
    let selected = |host: &usize| shape.hosts.is_empty() || shape.hosts[*host];
    if !(0..problem.hosts.len()).any(|host| selected(&host)) {
        return ("no host of the fleet has the name or labels it asks for".to_owned(), None);
    }
    constructor.allowed.prepare(state, vm);
    let mut best: Option<Lack> = None;
    let mut by_group = None;
    for host in (0..problem.hosts.len()).filter(selected) {
        if !constructor.allowed.host(host) {
            constructor.allowed.anything();
            if by_group.is_none() && constructor.finder.best_on(state, shape, host, &constructor.allowed).is_some() {
                by_group = Some(host);
            }
            constructor.allowed.prepare(state, vm);
            continue;
        }
        for lack in lacks(fleet, state, shape, vm, host) {
            if best.as_ref().is_none_or(|best| lack < *best) {
                best = Some(lack);
            }
        }
    }
    let remedy = |host: usize, change: String| Some(Remedy { host: fleet.hosts[host].name.clone(), change });
    if let Some(host) = by_group {
        let names: Vec<&str> = fleet.vms[vm].groups.iter().map(|group| group.group.as_str()).collect();
        let change = format!("leave group {} for this VM: this host has room", names.join(", "));
        return ("its group's rule keeps it off every host that has room".to_owned(), remedy(host, change));
    }
    match best {
        Some(lack) => {
            let reason = format!("no host has room for it; `{}` comes nearest", fleet.hosts[lack.host].name);
            (reason, remedy(lack.host, lack.change))
        }
        None => ("no host has room for it, and on none is a single thing missing".to_owned(), None),
    }
}

/// Single things that are missing on a host.
fn lacks(fleet: &Fleet, state: &State<'_>, shape: &Shape, vm: usize, host: usize) -> Vec<Lack> {
    let problem = state.problem;
    let dense = &problem.hosts[host];
    let count = match shape.cells {
        Cells::Free => 1,
        Cells::Fixed(count) => count,
    };
    let mut lacks = Vec::new();
    if dense.count < count as usize {
        return lacks;
    }
    if let Some(lack) = device_lack(fleet, state, shape, vm, host) {
        let places = (dense.first..dense.first + dense.count).filter(|node| {
            let (vcpus, pages) = shape.cell(0, count);
            state.fits(shape, *node, vcpus, pages)
        });
        // Devices missing beside a lack of room are two things.
        if places.count() >= count as usize {
            lacks.push(lack);
        }
        return lacks;
    }
    let (vcpus, pages) = shape.cell(0, count);
    let fits = |node: &usize| state.fits(shape, *node, vcpus, pages);
    let fitting = (dense.first..dense.first + dense.count).filter(fits).count();
    if fitting + 1 < count as usize {
        return lacks;
    }
    for node in (dense.first..dense.first + dense.count).filter(|node| !fits(node)) {
        let (cap, used) = (&problem.nodes[node], &state.uses[node]);
        let index = fleet.hosts[host].nodes[node - dense.first].index;
        let missing = u64::from(vcpus.saturating_sub(cap.room(used, shape.kind)));
        let short = pages.saturating_sub(cap.free_pages(used, shape.class, &problem.mib));
        let (part, change) = match (missing, short) {
            (0, short) if short > 0 => {
                let part = short * 1000 / pages.max(1);
                (
                    part,
                    match problem.sizes[shape.class] {
                        Some(size) => format!("{short} more {size} {} on node {index}", plural(short, "page")),
                        None => format!("{} more free memory on node {index}", nearmetal_units::Bytes::from_mib(short)),
                    },
                )
            }
            (missing, 0) if missing > 0 && shape.threads_suit(cap.threads) => {
                let what = match (shape.is_dedicated(), shape.kind.smt) {
                    (false, _) => format!("room for {} more", counted(missing, "shared vCPU")),
                    (true, crate::model::SmtPolicy::Isolate) => {
                        format!("{missing} more free whole {}", plural(missing, "core"))
                    }
                    (true, crate::model::SmtPolicy::Require) => {
                        format!("whole cores for {} more", counted(missing, "vCPU"))
                    }
                    _ => format!("{missing} more free {}", plural(missing, "PU")),
                };
                let change = format!("{what} on node {index}");
                (missing * 1000 / u64::from(vcpus.max(1)), change)
            }
            _ => continue,
        };
        lacks.push(Lack { part, host, change });
    }
    lacks
}

/// What is missing of the devices it asks for, if only one demand lacks some.
fn device_lack(fleet: &Fleet, state: &State<'_>, shape: &Shape, vm: usize, host: usize) -> Option<Lack> {
    let problem = state.problem;
    let dense = &problem.hosts[host];
    let mut lack = None;
    for (at, demand) in shape.demands.iter().enumerate() {
        let slots = dense.slots.clone().filter(|slot| problem.slots[*slot].suits(demand.selector));
        let near = demand.locality == Locality::Required;
        let free: u64 = slots
            .filter(|slot| !near || problem.slots[*slot].node.is_some())
            .map(|slot| u64::from(state.slot_free[slot]))
            .sum();
        let missing = u64::from(demand.count).saturating_sub(free);
        if missing == 0 {
            continue;
        }
        if lack.is_some() {
            return None;
        }
        let what = match &fleet.vms[vm].devices[at].selector {
            DeviceSelector::VirtualFunction { of: Some(name) } => {
                format!("{missing} more free {} of {name}", plural(missing, "VF"))
            }
            DeviceSelector::VirtualFunction { of: None } => {
                format!("{missing} more free {} of any interface", plural(missing, "VF"))
            }
            DeviceSelector::Id { vendor, device } => {
                format!("{missing} more free {} {vendor:04x}:{device:04x}", plural(missing, "device"))
            }
            DeviceSelector::Class { class } => {
                format!("{missing} more free {} of class {class:04x}", plural(missing, "device"))
            }
            DeviceSelector::Function(address) => format!("{address} to be free"),
            DeviceSelector::Shared { name } => format!("a device named {name}"),
        };
        lack = Some(Lack { part: missing * 1000 / u64::from(demand.count.max(1)), host, change: what });
    }
    lack
}

fn plural(count: u64, one: &str) -> String {
    if count == 1 { one.to_owned() } else { format!("{one}s") }
}

fn counted(count: u64, one: &str) -> String {
    format!("{count} {}", plural(count, one))
}
