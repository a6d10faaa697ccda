//! The fleet, compiled once: everything the search looks up is an index.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_units::PageSize;

use super::near::Near;
use super::node::{NodeCap, PAGE_CLASSES, PageMib};
use super::shape::{Demand, Shape, ShapeKey};
use crate::error::FleetError;
use crate::model::{
    CpuSharing, DeviceKind, DeviceSelector, DeviceSupply, Fleet, FleetHost, GuestNuma, HostSelector, Scope,
    SpreadHosts, Together, Vm,
};

/// Priorities told apart in one fleet.
pub(crate) const PRIORITIES: usize = 8;
/// vCPUs of one VM; QEMU's own limit is 4096 (q35 with KVM, 2024).
pub(crate) const MOST_VCPUS: u32 = 65_536;

/// A host.
#[derive(Debug, Clone)]
pub(crate) struct DenseHost {
    /// Its first node.
    pub(crate) first: usize,
    /// How many it has.
    pub(crate) count: usize,
    /// Index of its distances.
    pub(crate) near: usize,
    /// Its failure domain.
    pub(crate) domain: u32,
    /// Its device slots.
    pub(crate) slots: std::ops::Range<usize>,
}

/// Devices of one kind on one node.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    /// Position of the node on its host.
    pub(crate) node: Option<u32>,
    pub(crate) free: u32,
    /// Any number of VMs use it.
    pub(crate) shared: bool,
    /// Bit s: selector s takes it.
    matches: Vec<u64>,
}

impl Slot {
    pub(crate) fn suits(&self, selector: usize) -> bool {
        self.matches.get(selector / 64).is_some_and(|word| (word >> (selector % 64)) & 1 == 1)
    }
}

/// A VM.
#[derive(Debug, Clone)]
pub(crate) struct DenseVm {
    pub(crate) shape: usize,
    /// Position of its priority, 0 the highest.
    pub(crate) priority: usize,
    pub(crate) groups: Vec<DenseGroup>,
    /// It runs and must stay where it is.
    pub(crate) fixed: bool,
    /// So, and on PUs of its own: they are not in the nodes' figures.
    pub(crate) held: bool,
}

/// A VM's part in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DenseGroup {
    /// Index into `Problem::members`.
    pub(crate) group: usize,
    pub(crate) scope: Scope,
    pub(crate) rule: Together,
}

/// The whole fleet.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) hosts: Vec<DenseHost>,
    pub(crate) nodes: Vec<NodeCap>,
    /// Host of each node.
    pub(crate) node_host: Vec<u32>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) nears: Vec<Near>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) vms: Vec<DenseVm>,
    /// VMs of each group and scope.
    pub(crate) members: Vec<Vec<u32>>,
    /// Priorities, the highest first.
    pub(crate) priorities: Vec<i32>,
    /// Page sizes by class.
    pub(crate) sizes: Vec<Option<PageSize>>,
    pub(crate) mib: PageMib,
    pub(crate) spread: SpreadHosts,
    /// Whether the node has PUs for VMs, those held by VMs that stay included.
    pub(crate) has_pus: Vec<bool>,
    /// PUs and cores for VMs, likewise.
    pub(crate) all_pus: Vec<u64>,
    pub(crate) cores: Vec<u64>,
    /// Free pages of 1 GiB, before any VM.
    pub(crate) gib_pages: Vec<u64>,
    /// Whether functions that VMs can be given hang on the node.
    pub(crate) has_devices: Vec<bool>,
    /// Mean PUs and mean MiB of a node that has any: the measure of what is left.
    pub(crate) mean_pus: u64,
    pub(crate) mean_mib: u64,
}

impl Problem {
    pub(crate) fn new(fleet: &Fleet) -> Result<Self, FleetError> {
        unique("VMs", fleet.vms.iter().map(|vm| vm.name.as_str()))?;
        unique("hosts", fleet.hosts.iter().map(|host| host.name.as_str()))?;
        fleet.vms.iter().try_for_each(sensible)?;
        let used: BTreeSet<PageSize> = fleet.vms.iter().filter_map(|vm| vm.page_size).collect();
        limit("page sizes", used.len(), PAGE_CLASSES - 1)?;
        let sizes: Vec<Option<PageSize>> = std::iter::once(None).chain(used.into_iter().map(Some)).collect();
        let mut mib = [1; PAGE_CLASSES];
        for (class, size) in sizes.iter().enumerate() {
            if let Some(size) = size {
                mib[class] = (size.bytes().get() >> 20).max(1);
            }
        }
        let distinct: BTreeSet<i32> = fleet.vms.iter().map(|vm| vm.priority).collect();
        limit("priorities", distinct.len(), PRIORITIES)?;
        let priorities: Vec<i32> = distinct.into_iter().rev().collect();
        let mut problem = Self {
            hosts: Vec::with_capacity(fleet.hosts.len()),
            nodes: Vec::new(),
            node_host: Vec::new(),
            slots: Vec::new(),
            nears: Vec::new(),
            shapes: Vec::new(),
            vms: Vec::with_capacity(fleet.vms.len()),
            members: Vec::new(),
            priorities,
            sizes,
            mib,
            spread: fleet.spread,
            has_pus: Vec::new(),
            all_pus: Vec::new(),
            cores: Vec::new(),
            gib_pages: Vec::new(),
            has_devices: Vec::new(),
            mean_pus: 1,
            mean_mib: 1,
        };
        let selectors: Vec<&DeviceSelector> = {
            let all = fleet.vms.iter().flat_map(|vm| vm.devices.iter().map(|demand| &demand.selector));
            all.collect::<BTreeSet<_>>().into_iter().collect()
        };
        problem.add_hosts(fleet, &selectors);
        problem.add_vms(fleet, &selectors);
        problem.has_devices = vec![false; problem.nodes.len()];
        for host in &problem.hosts {
            for slot in problem.slots[host.slots.clone()].iter().filter(|slot| !slot.shared && slot.free > 0) {
                if let Some(node) = slot.node {
                    problem.has_devices[host.first + node as usize] = true;
                }
            }
        }
        let busy = problem.nodes.iter().filter(|node| node.pus() > 0).count().max(1) as u64;
        problem.mean_pus = (problem.nodes.iter().map(|node| u64::from(node.pus())).sum::<u64>() / busy).max(1);
        let memory = problem.nodes.iter().map(|node| {
            let pages = node.pages.iter().zip(&problem.mib);
            pages.map(|(pages, mib)| pages.saturating_mul(*mib)).fold(0u64, u64::saturating_add)
        });
        problem.mean_mib = (memory.fold(0u64, u64::saturating_add) / busy).max(1);
        Ok(problem)
    }

    fn add_hosts(&mut self, fleet: &Fleet, selectors: &[&DeviceSelector]) {
        let mut nears: std::collections::HashMap<Near, usize> = std::collections::HashMap::new();
        let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
        let named: BTreeSet<&str> = fleet.hosts.iter().filter_map(|host| host.failure_domain.as_deref()).collect();
        for (index, name) in named.into_iter().enumerate() {
            domains.insert(name, index as u32);
        }
        let own = domains.len() as u32;
        let mut held: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for vm in fleet.vms.iter().filter(|vm| holds_pus(vm)) {
            if let Some(current) = &vm.current {
                let pus = current.cells.iter().flat_map(|cell| cell.pus.iter().chain(&cell.idle));
                held.entry(&current.host).or_default().extend(pus);
            }
        }
        for (index, host) in fleet.hosts.iter().enumerate() {
            let near = Near::of(host);
            let next = nears.len();
            let near = *nears.entry(near).or_insert_with_key(|near| {
                self.nears.push(near.clone());
                next
            });
            let (first, slot) = (self.nodes.len(), self.slots.len());
            let taken = held.get(host.name.as_str());
            self.nodes.extend(host.nodes.iter().map(|node| NodeCap::of(node, &self.sizes, taken)));
            self.has_pus.extend(host.nodes.iter().map(|node| node.cores.iter().any(|core| !core.free.is_empty())));
            let pus =
                |node: &crate::model::NodeSupply| node.cores.iter().map(|core| core.free.len() as u64).sum::<u64>();
            self.all_pus.extend(host.nodes.iter().map(pus));
            self.cores.extend(host.nodes.iter().map(|node| node.cores.len() as u64));
            self.gib_pages.extend(host.nodes.iter().map(|node| {
                let pool = node.pools.iter().find(|pool| pool.size == PageSize::HUGE_1G);
                pool.map_or(0, |pool| pool.free)
            }));
            self.node_host.extend(host.nodes.iter().map(|_| index as u32));
            self.slots.extend(host.devices.iter().map(|device| slot_of(device, selectors, host.nodes.len())));
            let domain = host.failure_domain.as_deref().and_then(|name| domains.get(name).copied());
            self.hosts.push(DenseHost {
                first,
                count: host.nodes.len(),
                near,
                domain: domain.unwrap_or(own + index as u32),
                slots: slot..self.slots.len(),
            });
        }
    }

    fn add_vms(&mut self, fleet: &Fleet, selectors: &[&DeviceSelector]) {
        let mut shapes: BTreeMap<ShapeKey, usize> = BTreeMap::new();
        let mut groups: BTreeMap<(&str, Scope), usize> = BTreeMap::new();
        for (index, vm) in fleet.vms.iter().enumerate() {
            let class = self.sizes.iter().position(|size| *size == vm.page_size).unwrap_or(0);
            let key = ShapeKey::of(vm, class, self.mib[class]);
            let next = shapes.len();
            let shape = *shapes.entry(key).or_insert_with_key(|key| {
                let position = |demand: &crate::model::DeviceDemand| Demand {
                    selector: selectors.binary_search(&&demand.selector).unwrap_or(usize::MAX - 64),
                    count: demand.count,
                    locality: demand.locality,
                };
                let demands = key.demands.iter().map(position).collect();
                self.shapes.push(key.shape(demands, allowed(&key.hosts, &fleet.hosts)));
                next
            });
            let own: Vec<DenseGroup> = vm
                .groups
                .iter()
                .map(|rule| {
                    let next = groups.len();
                    let group = *groups.entry((rule.group.as_str(), rule.scope)).or_insert(next);
                    if group == self.members.len() {
                        self.members.push(Vec::new());
                    }
                    self.members[group].push(index as u32);
                    DenseGroup { group, scope: rule.scope, rule: rule.rule }
                })
                .collect();
            let priority = self.priorities.iter().position(|priority| *priority == vm.priority).unwrap_or(0);
            let fixed = vm.current.is_some() && !vm.movable;
            self.vms.push(DenseVm { shape, priority, groups: own, fixed, held: holds_pus(vm) });
        }
    }

    pub(crate) fn shape_of(&self, vm: usize) -> &Shape {
        &self.shapes[self.vms[vm].shape]
    }

    pub(crate) fn near(&self, host: usize) -> &Near {
        &self.nears[self.hosts[host].near]
    }
}

/// Whether the first takes the second.
pub(crate) fn takes(selector: &DeviceSelector, supply: &DeviceSupply) -> bool {
    match (selector, &supply.kind) {
        // A function by its address must be a supply of its own: others would be given it from the middle of one.
        (DeviceSelector::Function(address), _) => supply.functions == [*address],
        (DeviceSelector::VirtualFunction { of: None }, DeviceKind::VirtualFunctions { .. }) => true,
        (DeviceSelector::VirtualFunction { of: Some(name) }, DeviceKind::VirtualFunctions { of }) => name == of,
        (DeviceSelector::Id { vendor, device }, DeviceKind::Function { vendor: v, device: d, .. }) => {
            (vendor, device) == (v, d)
        }
        (DeviceSelector::Class { class }, DeviceKind::Function { class: c, .. }) => class == c,
        (DeviceSelector::Shared { name }, DeviceKind::Shared { name: n }) => name == n,
        _ => false,
    }
}

/// Whether a VM stays on PUs of its own.
fn holds_pus(vm: &Vm) -> bool {
    let Some(current) = vm.kept() else { return false };
    vm.sharing() == CpuSharing::Dedicated && current.cells.iter().all(|cell| cell.pus.len() == cell.vcpus as usize)
}

fn slot_of(device: &DeviceSupply, selectors: &[&DeviceSelector], nodes: usize) -> Slot {
    let mut matches = vec![0u64; selectors.len() / 64 + 1];
    for (index, _) in selectors.iter().enumerate().filter(|(_, selector)| takes(selector, device)) {
        matches[index / 64] |= 1 << (index % 64);
    }
    let shared = matches!(device.kind, DeviceKind::Shared { .. });
    // A shared device counts as one, never used up: `free` of it stays.
    let node = device.node.filter(|node| (*node as usize) < nodes);
    Slot { node, free: if shared { u32::MAX } else { device.free }, shared, matches }
}

fn allowed(selector: &HostSelector, hosts: &[FleetHost]) -> Vec<bool> {
    if *selector == HostSelector::default() {
        return Vec::new();
    }
    hosts.iter().map(|host| selector.admits(host)).collect()
}

fn unique<'a>(what: &'static str, names: impl Iterator<Item = &'a str>) -> Result<(), FleetError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(FleetError::Twice { what, name: name.to_owned() });
        }
    }
    Ok(())
}

fn limit(what: &'static str, count: usize, limit: usize) -> Result<(), FleetError> {
    if count > limit { Err(FleetError::TooMany { what, count, limit }) } else { Ok(()) }
}

fn sensible(vm: &Vm) -> Result<(), FleetError> {
    let whose = || format!("VM `{}`", vm.name);
    let out = |what, value: String, limit: String| Err(FleetError::OutOfRange { whose: whose(), what, value, limit });
    if vm.vcpus == 0 || vm.vcpus > MOST_VCPUS {
        return out("vcpus", vm.vcpus.to_string(), format!("give 1 to {MOST_VCPUS}"));
    }
    if vm.memory.get() >> 20 == 0 || vm.memory.get() >> 50 > 0 {
        return out("memory", vm.memory.to_string(), "give 1 MiB to 1 PiB".to_owned());
    }
    if let GuestNuma::Cells(cells) = vm.numa {
        if cells == 0 || cells > vm.vcpus {
            return out(
                "numa",
                format!("{cells} cells"),
                format!("give 1 to {} cells, one vCPU each at least", vm.vcpus),
            );
        }
    }
    if let CpuSharing::Shared { ratio_percent } = vm.cpus {
        if !(100..=10_000).contains(&ratio_percent) {
            return out(
                "ratio",
                format!("{ratio_percent} %"),
                "give 100 to 10000 %, 400 is four vCPUs a PU".to_owned(),
            );
        }
    }
    if vm.devices.iter().any(|demand| demand.count == 0 || demand.count > 4096) {
        return out("a device's count", "0 or above 4096".to_owned(), "give 1 to 4096".to_owned());
    }
    Ok(())
}
