//! Judges a finished plan against the fleet it is for. Shares no code with the search: it knows PUs, pages and functions
//! by name, adds them up again, and recomputes what every level reached. A plan that breaks a rule is not a plan.
//!
//! Long, since whoever doubts a plan should read all that judges it in one place.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_place::WorkloadClass;
use nearmetal_units::PageSize;

use crate::model::{
    CellPlacement, CpuSharing, DeviceKind, DeviceSelector, Fleet, FleetHost, FleetPlan, GuestNuma, HostChange, LevelId,
    Locality, NodeSupply, Scope, SmtPolicy, SpreadHosts, Together, Vm, VmPlacement,
};

/// A rule a plan breaks, in a sentence that names VM, host and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach(pub String);

impl std::fmt::Display for Breach {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

const MIB: u64 = 1 << 20;

/// Everything wrong with a plan; empty: it keeps every rule and says the truth about its objective.
pub fn check(fleet: &Fleet, plan: &FleetPlan) -> Vec<Breach> {
    let mut judge = Judge { fleet, breaches: Vec::new(), hosts: BTreeMap::new(), vms: BTreeMap::new() };
    judge.hosts = fleet.hosts.iter().map(|host| (host.name.as_str(), host)).collect();
    judge.vms = fleet.vms.iter().map(|vm| (vm.name.as_str(), vm)).collect();
    judge.everyone_once(plan);
    for placement in &plan.placements {
        judge.placement(placement);
    }
    judge.processors(&plan.placements);
    judge.memory(&plan.placements, &plan.pools);
    judge.devices(&plan.placements);
    judge.groups(&plan.placements);
    judge.levels(plan);
    judge.breaches
}

/// What places break beside each other, whoever else there is: PUs, memory, devices and groups of these VMs on these
/// hosts, with just these pages added to pools.
pub(crate) fn clashes(
    fleet: &Fleet,
    hosts: &[&FleetHost],
    vms: &[&Vm],
    placements: &[VmPlacement],
    pools: &[HostChange],
) -> Vec<Breach> {
    let mut judge = Judge { fleet, breaches: Vec::new(), hosts: BTreeMap::new(), vms: BTreeMap::new() };
    judge.hosts = hosts.iter().map(|host| (host.name.as_str(), *host)).collect();
    judge.vms = vms.iter().map(|vm| (vm.name.as_str(), *vm)).collect();
    judge.processors(placements);
    judge.memory(placements, pools);
    judge.devices(placements);
    judge.groups(placements);
    judge.breaches
}

struct Judge<'a> {
    fleet: &'a Fleet,
    breaches: Vec<Breach>,
    hosts: BTreeMap<&'a str, &'a FleetHost>,
    vms: BTreeMap<&'a str, &'a Vm>,
}

impl<'a> Judge<'a> {
    fn breach(&mut self, text: String) {
        self.breaches.push(Breach(text));
    }

    fn pair(&self, placement: &VmPlacement) -> Option<(&'a Vm, &'a FleetHost)> {
        Some((*self.vms.get(placement.vm.as_str())?, *self.hosts.get(placement.host.as_str())?))
    }

    fn everyone_once(&mut self, plan: &FleetPlan) {
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        let refused = plan.refusals.iter().map(|refusal| refusal.vm.as_str());
        for name in plan.placements.iter().map(|placement| placement.vm.as_str()).chain(refused) {
            *seen.entry(name).or_default() += 1;
        }
        for vm in &self.fleet.vms {
            match seen.remove(vm.name.as_str()) {
                Some(1) => {}
                other => self.breach(format!("{} is in the plan {} times", vm.name, other.unwrap_or(0))),
            }
        }
        for name in seen.into_keys() {
            self.breach(format!("{name} is in the plan and not in the fleet"));
        }
    }

    /// What concerns one VM alone.
    fn placement(&mut self, placement: &VmPlacement) {
        let Some((vm, host)) = self.pair(placement) else {
            return self.breach(format!("{} on {}: no such VM or host", placement.vm, placement.host));
        };
        let name = &vm.name;
        let selector = &vm.hosts;
        let by_label = selector.labels.iter().all(|(key, value)| host.labels.get(key) == Some(value));
        // What stays keeps the place it has, whatever it asks for now.
        let stays = stays(vm);
        if !(selector.names.is_empty() || selector.names.contains(&host.name)) || !by_label {
            self.breach(format!("{name} may not be on {}", host.name));
        }
        let nodes: BTreeSet<u32> = placement.cells.iter().map(|cell| cell.node).collect();
        if nodes.len() != placement.cells.len() {
            self.breach(format!("{name} has two cells on one node"));
        }
        let known: BTreeSet<u32> = host.nodes.iter().map(|node| node.index).collect();
        if !nodes.is_subset(&known) {
            self.breach(format!("{name} is on a node {} does not have", host.name));
        }
        let vcpus: u64 = placement.cells.iter().map(|cell| u64::from(cell.vcpus)).sum();
        let memory: u64 = placement.cells.iter().map(|cell| cell.memory.get()).sum();
        let page = vm.page_size.map_or(MIB, |size| size.bytes().get().max(MIB));
        if vcpus != u64::from(vm.vcpus) || memory != vm.memory.get().div_ceil(page) * page {
            self.breach(format!(
                "{name} gets {vcpus} vCPUs and {memory} bytes, asked for {} and {}",
                vm.vcpus, vm.memory
            ));
        }
        if placement.page_size != vm.page_size {
            self.breach(format!("{name} gets pages of another size than it asked for"));
        }
        if let GuestNuma::Cells(cells) = if stays { GuestNuma::Hidden } else { vm.numa } {
            let least = vm.vcpus / cells;
            let even = placement.cells.iter().all(|cell| {
                // By vCPUs, to the page.
                let share = u128::from(memory) * u128::from(cell.vcpus) / u128::from(vm.vcpus);
                let off = u128::from(cell.memory.get()).abs_diff(share);
                (least..=least + 1).contains(&cell.vcpus) && off <= u128::from(page)
            });
            if placement.cells.len() != cells as usize || !even {
                self.breach(format!("{name} asked for {cells} even cells"));
            }
        }
        let whole = |cell: &CellPlacement| cell.vcpus > 0 && cell.memory.get() > 0;
        if vm.numa == GuestNuma::Mirror && !stays && !placement.cells.iter().all(whole) {
            self.breach(format!("{name} sees its nodes, and has only vCPUs or only memory on one of them"));
        }
        if let Some(current) = vm.current.as_ref().filter(|_| !vm.movable) {
            if current.host == placement.host && !stays {
                return;
            }
            let pinned = current.cells.iter().all(|cell| cell.pus.len() == cell.vcpus as usize);
            let same_nodes = current.cells.iter().map(|cell| (cell.node, cell.vcpus, cell.memory));
            let stays = current.host == placement.host
                && same_nodes.eq(placement.cells.iter().map(|cell| (cell.node, cell.vcpus, cell.memory)))
                && (!pinned || current.cells == placement.cells)
                && current.devices == placement.devices;
            if !stays {
                self.breach(format!("{name} runs and may not be moved, yet it is"));
            }
        }
    }

    /// No PU twice, and what each VM asked of cores.
    fn processors(&mut self, placements: &[VmPlacement]) {
        let mut owned: BTreeMap<(&str, u32), &str> = BTreeMap::new();
        let mut shared: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        for placement in placements {
            let Some((vm, host)) = self.pair(placement) else { continue };
            for cell in &placement.cells {
                let Some(node) = host.nodes.iter().find(|node| node.index == cell.node) else { continue };
                if let CpuSharing::Shared { ratio_percent } = vm.sharing() {
                    let load = (u64::from(cell.vcpus) * 100_000).div_ceil(u64::from(ratio_percent));
                    *shared.entry((&host.name, node.index)).or_default() += load;
                    if !cell.pus.is_empty() {
                        self.breach(format!("{} shares PUs and owns some", vm.name));
                    }
                    continue;
                }
                let supply: BTreeSet<u32> = node.cores.iter().flat_map(|core| core.free.iter().copied()).collect();
                if cell.pus.len() != cell.vcpus as usize {
                    self.breach(format!(
                        "{} has {} PUs for {} vCPUs on node {}",
                        vm.name,
                        cell.pus.len(),
                        cell.vcpus,
                        cell.node
                    ));
                }
                for pu in cell.pus.iter().chain(&cell.idle) {
                    if !supply.contains(pu) {
                        self.breach(format!(
                            "{}: PU {pu} of {} is not to be had on node {}",
                            vm.name, host.name, cell.node
                        ));
                    }
                    if let Some(other) = owned.insert((&host.name, *pu), &vm.name) {
                        self.breach(format!("PU {pu} of {} is given to {other} and to {}", host.name, vm.name));
                    }
                }
                let bound = |cell: &CellPlacement| cell.pus.len() == cell.vcpus as usize;
                if !(stays(vm) && vm.current.iter().flat_map(|current| &current.cells).all(bound)) {
                    self.cores(vm, node, &cell.pus, &cell.idle);
                }
            }
        }
        for ((host, index), load) in shared {
            let Some(node) = self.hosts.get(host).and_then(|host| host.nodes.iter().find(|node| node.index == index))
            else {
                continue;
            };
            let free =
                node.cores.iter().flat_map(|core| &core.free).filter(|pu| !owned.contains_key(&(host, **pu))).count();
            if load > free as u64 * 1000 {
                self.breach(format!(
                    "node {index} of {host}: shared vCPUs need {load} thousandths of a PU, {free} PUs are free"
                ));
            }
        }
    }

    fn cores(&mut self, vm: &Vm, node: &NodeSupply, pus: &[u32], idle: &[u32]) {
        let mine: BTreeSet<u32> = pus.iter().chain(idle).copied().collect();
        let mut partial = 0;
        for core in node.cores.iter().filter(|core| core.free.iter().any(|pu| mine.contains(pu))) {
            let used = core.free.iter().filter(|pu| pus.contains(pu)).count() as u32;
            let own = core.free.iter().filter(|pu| mine.contains(pu)).count() as u32;
            match vm.smt {
                SmtPolicy::Isolate if used != 1 || own != core.threads => {
                    self.breach(format!(
                        "{} is isolated, and has {used} vCPUs on a core of which it owns {own} of {} PUs",
                        vm.name, core.threads
                    ));
                }
                SmtPolicy::Require if core.threads < 2 || (core.free.len() as u32) < core.threads => {
                    self.breach(format!("{} requires whole cores of several PUs", vm.name));
                }
                SmtPolicy::Require if used < core.threads => partial += 1,
                _ => {}
            }
        }
        if partial > 1 {
            self.breach(format!("{} requires siblings and has {partial} cores in part", vm.name));
        }
    }

    /// Pools and free memory, with the growth the plan says.
    fn memory(&mut self, placements: &[VmPlacement], pools: &[HostChange]) {
        let mut used: BTreeMap<(&str, u32, Option<PageSize>), u64> = BTreeMap::new();
        for placement in placements {
            for cell in &placement.cells {
                *used.entry((&placement.host, cell.node, placement.page_size)).or_default() += cell.memory.get();
            }
        }
        let mut kernel: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        let mut said: BTreeMap<(&str, u32, PageSize), u64> = BTreeMap::new();
        for change in pools {
            *said.entry((&change.host, change.node, change.size)).or_default() += change.add;
        }
        for ((host, index, size), bytes) in used {
            let Some(node) = self.hosts.get(host).and_then(|host| host.nodes.iter().find(|node| node.index == index))
            else {
                continue;
            };
            let Some(size) = size else {
                *kernel.entry((host, index)).or_default() += bytes;
                continue;
            };
            let pages = bytes.div_ceil(size.bytes().get());
            let pool = node.pools.iter().find(|pool| pool.size == size);
            let over = pages.saturating_sub(pool.map_or(0, |pool| pool.free));
            if over > 0 && !pool.is_some_and(|pool| pool.may_grow) {
                self.breach(format!("node {index} of {host} lacks {over} pages of {size}"));
            }
            if said.remove(&(host, index, size)).unwrap_or(0) != over {
                self.breach(format!("node {index} of {host}: pages to add of {size} are not {over}"));
            }
            *kernel.entry((host, index)).or_default() += over * size.bytes().get();
        }
        for ((host, index, size), add) in said {
            self.breach(format!("node {index} of {host}: {add} pages of {size} are added for nobody"));
        }
        for ((host, index), bytes) in kernel {
            let node = self.hosts.get(host).and_then(|host| host.nodes.iter().find(|node| node.index == index));
            let there = node.map_or(0, |node| node.memory.get());
            if bytes > there {
                self.breach(format!("node {index} of {host}: {bytes} bytes are given of {there}"));
            }
        }
    }

    fn devices(&mut self, placements: &[VmPlacement]) {
        let mut given: BTreeMap<(&str, u32), u32> = BTreeMap::new();
        let mut functions = BTreeSet::new();
        for placement in placements {
            let Some((vm, host)) = self.pair(placement) else { continue };
            let mut got = vec![0u32; vm.devices.len()];
            for grant in &placement.devices {
                let (Some(demand), Some(supply)) =
                    (vm.devices.get(grant.demand as usize), host.devices.get(grant.supply as usize))
                else {
                    self.breach(format!("{} is given a device that is not there", vm.name));
                    continue;
                };
                got[grant.demand as usize] += grant.count;
                let suits = match (&demand.selector, &supply.kind) {
                    (DeviceSelector::VirtualFunction { of: wanted }, DeviceKind::VirtualFunctions { of }) => {
                        wanted.as_ref().is_none_or(|wanted| wanted == of)
                    }
                    (DeviceSelector::Id { vendor, device }, DeviceKind::Function { vendor: v, device: d, .. }) => {
                        vendor == v && device == d
                    }
                    (DeviceSelector::Class { class }, DeviceKind::Function { class: c, .. }) => class == c,
                    (DeviceSelector::Function(address), _) => {
                        supply.functions == [*address] && grant.functions == [*address]
                    }
                    (DeviceSelector::Shared { name }, DeviceKind::Shared { name: n }) => name == n,
                    _ => false,
                };
                if !suits {
                    self.breach(format!("{} is given a device it did not ask for", vm.name));
                }
                let node = supply.node.and_then(|node| host.nodes.get(node as usize)).map(|node| node.index);
                let near = node.is_some_and(|node| placement.cells.iter().any(|cell| cell.node == node));
                if demand.locality == Locality::Required && !near && !stays(vm) {
                    self.breach(format!("{} requires its device on its node", vm.name));
                }
                if !matches!(supply.kind, DeviceKind::Shared { .. }) {
                    *given.entry((&host.name, grant.supply)).or_default() += grant.count;
                    for function in &grant.functions {
                        if !functions.insert((&host.name, *function)) {
                            self.breach(format!("{function} of {} is given twice", host.name));
                        }
                    }
                    if !supply.functions.is_empty() && grant.functions.len() != grant.count as usize {
                        self.breach(format!("{} gets {} functions of {}", vm.name, grant.functions.len(), grant.count));
                    }
                }
            }
            for (demand, got) in vm.devices.iter().zip(got) {
                if got != demand.count {
                    self.breach(format!("{} gets {got} of {} devices", vm.name, demand.count));
                }
            }
        }
        for ((host, supply), count) in given {
            let free =
                self.hosts.get(host).and_then(|host| host.devices.get(supply as usize)).map_or(0, |there| there.free);
            if count > free {
                self.breach(format!("{host}: {count} devices are given of {free}"));
            }
        }
    }

    fn groups(&mut self, placements: &[VmPlacement]) {
        let mut members: BTreeMap<(&str, Scope), Vec<(&VmPlacement, Together)>> = BTreeMap::new();
        for placement in placements {
            let Some((vm, _)) = self.pair(placement) else { continue };
            for rule in &vm.groups {
                members.entry((&rule.group, rule.scope)).or_default().push((placement, rule.rule));
            }
        }
        let mut broken = Vec::new();
        for ((group, scope), members) in &members {
            for (at, (one, rule)) in members.iter().enumerate() {
                for (other, other_rule) in &members[at + 1..] {
                    let share = self.share(*scope, one, other);
                    let both_stay =
                        [one, other].iter().all(|placement| self.pair(placement).is_some_and(|(vm, _)| stays(vm)));
                    let kept = match (rule, other_rule) {
                        (Together::Together, Together::Together) => share == Share::Same,
                        (Together::Apart, Together::Apart) => share == Share::Apart,
                        (Together::ApartFromOtherLabels(one), Together::ApartFromOtherLabels(other)) => {
                            one == other || share == Share::Apart
                        }
                        _ => true,
                    };
                    if !kept && !both_stay {
                        broken.push(format!("{} and {} break group {group}", one.vm, other.vm));
                    }
                }
            }
        }
        broken.into_iter().for_each(|text| self.breach(text));
    }

    fn share(&self, scope: Scope, one: &VmPlacement, other: &VmPlacement) -> Share {
        let together = match scope {
            Scope::Host => one.host == other.host,
            Scope::FailureDomain => {
                let domain = |placement: &VmPlacement| {
                    self.hosts.get(placement.host.as_str()).and_then(|host| host.failure_domain.as_deref())
                };
                one.host == other.host || (domain(one).is_some() && domain(one) == domain(other))
            }
            Scope::Node => {
                let of =
                    |placement: &VmPlacement| placement.cells.iter().map(|cell| cell.node).collect::<BTreeSet<_>>();
                if one.host == other.host && of(one) != of(other) && !of(one).is_disjoint(&of(other)) {
                    return Share::Partly;
                }
                one.host == other.host && of(one) == of(other)
            }
        };
        if together { Share::Same } else { Share::Apart }
    }

    /// What the plan says it reached against what it did.
    fn levels(&mut self, plan: &FleetPlan) {
        for entry in &plan.objective.levels {
            let value = self.value(plan, entry.level);
            if value != entry.value {
                self.breach(format!("{}: the plan says {}, it is {value}", entry.level.words(), entry.value));
            }
            if entry.bound > value {
                self.breach(format!(
                    "{}: the bound {} is above what was reached, {value}",
                    entry.level.words(),
                    entry.bound
                ));
            }
        }
    }

    /// A level, worked out from the plan's own words.
    fn value(&self, plan: &FleetPlan, level: LevelId) -> u64 {
        let pairs = || plan.placements.iter().filter_map(|placement| Some((placement, self.pair(placement)?)));
        let used: BTreeSet<&str> = plan.placements.iter().map(|placement| placement.host.as_str()).collect();
        match level {
            LevelId::Unplaced { priority } => {
                let placed: BTreeSet<&str> = plan.placements.iter().map(|placement| placement.vm.as_str()).collect();
                let missing =
                    self.fleet.vms.iter().filter(|vm| vm.priority == priority && !placed.contains(vm.name.as_str()));
                missing.map(|vm| u64::from(vm.vcpus)).sum()
            }
            LevelId::ExtraNodes => {
                let asked = |vm: &Vm| if let GuestNuma::Cells(cells) = vm.numa { cells as usize } else { 1 };
                pairs().map(|(placement, (vm, _))| placement.cells.len().saturating_sub(asked(vm)) as u64).sum()
            }
            LevelId::RemoteMemory => pairs().map(|(placement, (_, host))| remote(placement, host)).sum(),
            LevelId::RemoteDevices => pairs().map(|(placement, (vm, host))| far_devices(placement, vm, host)).sum(),
            LevelId::Hosts => match self.fleet.spread {
                SpreadHosts::Fewest => used.len() as u64,
                SpreadHosts::Most => (self.fleet.hosts.len() - used.len()) as u64,
            },
            LevelId::BrokenNodes => {
                let nodes = plan
                    .placements
                    .iter()
                    .flat_map(|placement| placement.cells.iter().map(|cell| (placement.host.as_str(), cell.node)));
                nodes.collect::<BTreeSet<_>>().len() as u64
            }
            LevelId::SharedBandwidth => self.shared_bandwidth(plan),
            LevelId::Stranded => self.stranded(plan),
            LevelId::SharedCores => self.shared_cores(plan),
            LevelId::ExtraL3 => self.extra_l3(plan),
        }
    }

    fn shared_bandwidth(&self, plan: &FleetPlan) -> u64 {
        let mut on: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        for placement in &plan.placements {
            let class = self.vms.get(placement.vm.as_str()).map(|vm| vm.class);
            if matches!(class, Some(WorkloadClass::Throughput | WorkloadClass::Latency)) {
                placement.cells.iter().for_each(|cell| *on.entry((&placement.host, cell.node)).or_default() += 1);
            }
        }
        let of_host = |host: &FleetHost| {
            let name = host.name.as_str();
            let count = |node: &NodeSupply| on.get(&(name, node.index)).copied().unwrap_or(0);
            let beyond: u64 = host.nodes.iter().map(|node| count(node).saturating_sub(1)).sum();
            let has_pus = |node: &&NodeSupply| node.cores.iter().any(|core| !core.free.is_empty());
            beyond.min(host.nodes.iter().filter(has_pus).filter(|node| count(node) == 0).count() as u64)
        };
        self.fleet.hosts.iter().map(of_host).sum()
    }

    fn stranded(&self, plan: &FleetPlan) -> u64 {
        let asked: BTreeSet<PageSize> = self.fleet.vms.iter().filter_map(|vm| vm.page_size).collect();
        let mut by_host: BTreeMap<&str, Vec<&VmPlacement>> = BTreeMap::new();
        plan.placements.iter().for_each(|placement| by_host.entry(&placement.host).or_default().push(placement));
        let mut sum = 0;
        for host in &self.fleet.hosts {
            let here = || by_host.get(host.name.as_str()).into_iter().flatten();
            for (at, node) in host.nodes.iter().enumerate() {
                let pus = node.cores.iter().map(|core| core.free.len() as u64).sum::<u64>();
                let (mut owned, mut load, mut kernel) = (0, 0u64, 0);
                let mut taken: BTreeMap<PageSize, u64> = BTreeMap::new();
                for placement in here() {
                    for cell in placement.cells.iter().filter(|cell| cell.node == node.index) {
                        owned += (cell.pus.len() + cell.idle.len()) as u64;
                        let sharing = self.vms.get(placement.vm.as_str()).map(|vm| vm.sharing());
                        if let Some(CpuSharing::Shared { ratio_percent }) = sharing {
                            load += (u64::from(cell.vcpus) * 100_000).div_ceil(u64::from(ratio_percent));
                        }
                        match placement.page_size {
                            None => kernel += cell.memory.get(),
                            Some(size) => *taken.entry(size).or_default() += cell.memory.get() / size.bytes().get(),
                        }
                    }
                }
                let free = |size: PageSize| {
                    let there = node.pools.iter().find(|pool| pool.size == size).map_or(0, |pool| pool.free);
                    (there, taken.get(&size).copied().unwrap_or(0))
                };
                let grown = asked.iter().map(|size| {
                    let (there, taken) = free(*size);
                    taken.saturating_sub(there) * size.bytes().get()
                });
                let left = node.memory.get().saturating_sub(kernel + grown.sum::<u64>());
                let no_memory = left < MIB && asked.iter().all(|size| free(*size).0 <= free(*size).1);
                let no_pu = pus <= owned + load.div_ceil(1000);
                let functions = host.devices.iter().zip(0u32..).filter(|(device, _)| {
                    device.node == Some(at as u32) && !matches!(device.kind, DeviceKind::Shared { .. })
                });
                let functions = functions.map(|(device, supply)| {
                    let grants = here().flat_map(|placement| &placement.devices).filter(|grant| grant.supply == supply);
                    device.free.saturating_sub(grants.map(|grant| grant.count).sum())
                });
                let (there, used) = free(PageSize::HUGE_1G);
                sum += match pus {
                    0 => 0,
                    _ if no_pu => functions.map(u64::from).sum::<u64>() + there.saturating_sub(used),
                    _ if no_memory => functions.map(u64::from).sum(),
                    _ => 0,
                };
            }
        }
        sum
    }

    fn shared_cores(&self, plan: &FleetPlan) -> u64 {
        let mut owner: BTreeMap<(&str, u32), &str> = BTreeMap::new();
        for placement in &plan.placements {
            for pu in placement.cells.iter().flat_map(|cell| cell.pus.iter().chain(&cell.idle)) {
                owner.insert((&placement.host, *pu), &placement.vm);
            }
        }
        let cores = self.fleet.hosts.iter().flat_map(|host| {
            host.nodes.iter().flat_map(move |node| node.cores.iter().map(move |core| (host.name.as_str(), core)))
        });
        let several = cores.filter(|(host, core)| {
            core.free.iter().filter_map(|pu| owner.get(&(*host, *pu))).collect::<BTreeSet<_>>().len() > 1
        });
        several.count() as u64
    }

    fn extra_l3(&self, plan: &FleetPlan) -> u64 {
        let mut extra = 0;
        for placement in &plan.placements {
            let Some((vm, host)) = self.pair(placement) else { continue };
            for cell in placement.cells.iter().filter(|cell| !cell.pus.is_empty()) {
                let Some(node) = host.nodes.iter().find(|node| node.index == cell.node) else { continue };
                let most = node.cores.iter().map(|core| core.threads).max().unwrap_or(1);
                let mut room: BTreeMap<u32, u64> = BTreeMap::new();
                let mut touched = BTreeSet::new();
                for core in &node.cores {
                    let whole = core.free.len() as u32 == core.threads;
                    *room.entry(core.l3).or_default() += match vm.smt {
                        SmtPolicy::Isolate => u64::from(whole),
                        SmtPolicy::Require if core.threads < most => 0,
                        _ => core.free.len() as u64,
                    };
                    if core.free.iter().any(|pu| cell.pus.contains(pu)) {
                        touched.insert(core.l3);
                    }
                }
                let mut sizes: Vec<u64> = room.into_values().collect();
                sizes.sort_unstable();
                let mut left = i64::from(cell.vcpus);
                let mut fewest = 0;
                while left > 0 {
                    let Some(size) = sizes.pop() else { break };
                    left -= size as i64;
                    fewest += 1;
                }
                extra += (touched.len() as u64).saturating_sub(fewest);
            }
        }
        extra
    }
}

/// Whether it runs in a place of its own and may not be moved.
fn stays(vm: &Vm) -> bool {
    !vm.movable && vm.current.as_ref().is_some_and(|current| !current.cells.is_empty())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Same,
    Partly,
    Apart,
}

/// Memory away from the node with most vCPUs, the cheapest such node if there are several.
fn remote(placement: &VmPlacement, host: &FleetHost) -> u64 {
    let position = |index: u32| host.nodes.iter().position(|node| node.index == index);
    let most = placement.cells.iter().map(|cell| cell.vcpus).max().unwrap_or(0);
    let homes = placement.cells.iter().filter(|cell| cell.vcpus == most);
    let from = |home: u32| -> u64 {
        let cost = |cell: &crate::model::CellPlacement| {
            let (Some(from), Some(to)) = (position(home), position(cell.node)) else { return 0 };
            let given = host.distances.get(from).and_then(|row| row.get(to)).copied();
            let distance = given.unwrap_or(if from == to { 10 } else { 20 });
            cell.memory.get() / MIB * u64::from(distance.saturating_sub(10))
        };
        placement.cells.iter().map(cost).sum()
    };
    homes.map(|home| from(home.node)).min().unwrap_or(0)
}

fn far_devices(placement: &VmPlacement, vm: &Vm, host: &FleetHost) -> u64 {
    let mut cost = 0;
    for grant in &placement.devices {
        let locality = vm.devices.get(grant.demand as usize).map(|demand| demand.locality);
        if locality == Some(Locality::Far) {
            continue;
        }
        let node = host.devices.get(grant.supply as usize).and_then(|supply| supply.node);
        let node = node.and_then(|node| host.nodes.get(node as usize));
        let away = match node {
            None => 2,
            Some(node) if placement.cells.iter().any(|cell| cell.node == node.index) => 0,
            Some(node) => {
                let of = |index: u32| host.nodes.iter().find(|node| node.index == index).and_then(|node| node.package);
                let same = placement.cells.iter().any(|cell| node.package.is_some() && of(cell.node) == node.package);
                if same { 1 } else { 2 }
            }
        };
        cost += away * u64::from(grant.count);
    }
    cost
}
