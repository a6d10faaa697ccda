//! What a host has left to give, from its model.

use std::collections::BTreeMap;

use nearmetal_host::assignable::{self, Obstacle};
use nearmetal_host::ledger::Ledger;
use nearmetal_host::{Host, NumaNode, PciDevice};
use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};

use crate::model::{CoreSupply, DeviceKind, DeviceSupply, FleetHost, NodeSupply, PoolSupply};

/// What the host keeps for itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reserve {
    /// Cores of each node, the lowest ones; a node keeps one at least for its VMs. Default 0.
    pub cores_per_node: u32,
    /// The core of the lowest online PU, where interrupts and timers that belong nowhere else run. Default: kept.
    pub first_core: bool,
    /// Memory of each node. Default: 5 %, as [`nearmetal_place::Policy`] has it.
    pub memory_per_node: Option<Bytes>,
    /// Whether a plan may let pools of pages below 1 GiB grow. Default: it may.
    pub pools_grow: bool,
}

impl Default for Reserve {
    fn default() -> Self {
        Self { cores_per_node: 0, first_core: true, memory_per_node: None, pools_grow: true }
    }
}

/// Functions that are meant for a VM, with a number for each such VM.
pub(crate) type Meant = BTreeMap<PciAddress, usize>;

impl FleetHost {
    /// From a host and what its ledger says others hold. PUs that are offline, isolated from the scheduler or in an
    /// isolated partition are left out, and so are those a vCPU is bound to and devices in use; memory is what is free
    /// now. Of an IOMMU group one function is there: a VM has all of a group.
    pub fn of(name: impl Into<String>, host: &Host, ledger: &Ledger, reserve: &Reserve) -> Self {
        Self::with(name.into(), host, ledger, reserve, &Meant::new())
    }

    /// The same, with all functions of an IOMMU group that are meant for one VM.
    pub(crate) fn with(name: String, host: &Host, ledger: &Ledger, reserve: &Reserve, meant: &Meant) -> Self {
        let mut unknown: Vec<String> = ledger.unknown.iter().map(|what| format!("not known: {what}")).collect();
        let free = ledger.free.difference(&host.isolated_cpus().difference(&of_guests_partition(host)));
        let first = host.online().first();
        let mut nodes: Vec<NodeSupply> = host
            .nodes
            .iter()
            .map(|node| node_supply(host, node, &free, first.filter(|_| reserve.first_core), reserve, &mut unknown))
            .collect();
        nodes.sort_by_key(|node| node.index);
        let distance = |from: &NodeSupply, to: &NodeSupply| {
            let known = host.node(from.index).and_then(|node| node.distance(to.index));
            known.unwrap_or(if from.index == to.index { 10 } else { 20 })
        };
        let distances = nodes.iter().map(|from| nodes.iter().map(|to| distance(from, to)).collect()).collect();
        let devices = devices(host, ledger, meant, &nodes);
        unknown.extend(left_to_host(host, ledger));
        Self { name, nodes, distances, devices, unknown, ..Self::default() }
    }

    /// Makes this function a supply of its own, so that it can be asked for by its address. `false`: it is not among
    /// those that are free.
    pub fn set_apart(&mut self, function: PciAddress) -> bool {
        let Some(at) = self.devices.iter().position(|supply| supply.functions.contains(&function)) else {
            return false;
        };
        let supply = &mut self.devices[at];
        if supply.functions.len() > 1 {
            supply.functions.retain(|other| *other != function);
            supply.free = supply.free.saturating_sub(1);
            let alone = DeviceSupply { functions: vec![function], free: 1, ..supply.clone() };
            self.devices.push(alone);
        }
        true
    }
}

fn node_supply(
    host: &Host,
    node: &NumaNode,
    free: &CpuSet,
    first: Option<u32>,
    reserve: &Reserve,
    unknown: &mut Vec<String>,
) -> NodeSupply {
    let mut supply = NodeSupply { index: node.index, ..NodeSupply::default() };
    supply.package = node.cpus.first().and_then(|cpu| {
        host.packages.iter().zip(0u32..).find(|(package, _)| package.cpus.contains(cpu)).map(|(_, at)| at)
    });
    let mut seen = CpuSet::new();
    let mut kept = 0;
    let mut cores = Vec::new();
    for cpu in node.cpus.iter() {
        if seen.contains(cpu) || host.processor(cpu).is_some_and(|processor| !processor.online) {
            continue;
        }
        // A PU the kernel gives no core for is one of its own.
        let core = host.cores.iter().find(|core| core.cpus.contains(cpu)).map(|core| &core.cpus);
        let members = core.map_or_else(|| CpuSet::one(cpu), |core| core.intersection(&node.cpus));
        seen = seen.union(&members);
        cores.push(members);
    }
    let kinds = kinds(host);
    let spare = (cores.len() as u32).saturating_sub(1);
    for members in cores {
        let is_first = first.is_some_and(|first| members.contains(first));
        if is_first || kept < reserve.cores_per_node.min(spare) {
            kept += u32::from(!is_first);
            supply.housekeeping = supply.housekeeping.union(&members);
            continue;
        }
        let left = members.intersection(free);
        if left.is_empty() {
            continue;
        }
        let cache = members.first().and_then(|cpu| host.processor(cpu)?.last_level_cache.as_ref()?.first());
        supply.cores.push(CoreSupply {
            free: left.iter().collect(),
            threads: members.len() as u32,
            // A core whose cache is not known shares it with the node.
            l3: cache.or(node.cpus.first()).unwrap_or_default(),
            kind: kind_of(&kinds, &members),
        });
    }
    let kept_memory =
        reserve.memory_per_node.unwrap_or_else(|| nearmetal_place::Policy::default().reserve(node.memory_total));
    let available =
        if node.memory_total == Some(Bytes::ZERO) { Some(Bytes::ZERO) } else { host.memory_available(node) };
    if available.is_none() {
        unknown.push(format!("free memory of node {} is not known: none is given to VMs", node.index));
    }
    supply.memory = available.unwrap_or_default().less(kept_memory);
    supply.pools = node
        .pools
        .iter()
        .map(|pool| PoolSupply {
            size: pool.size,
            free: pool.free,
            may_grow: reserve.pools_grow && pool.size < PageSize::HUGE_1G,
        })
        .collect();
    supply
}

/// The kind a core is of; 0 where kinds are not told apart.
pub(crate) fn kind_of(kinds: &[&CpuSet], members: &CpuSet) -> u32 {
    kinds.iter().zip(0..).find(|(kind, _)| !kind.is_disjoint(members)).map_or(0, |(_, at)| at)
}

/// PUs of each kind of core, the fastest first: by the scheduler's capacity, or else by the highest frequency.
pub(crate) fn kinds(host: &Host) -> Vec<&CpuSet> {
    let mut kinds: Vec<_> = host.core_kinds.iter().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse((kind.capacity, kind.max_frequency)));
    kinds.into_iter().map(|kind| &kind.cpus).collect()
}

fn devices(host: &Host, ledger: &Ledger, meant: &Meant, nodes: &[NodeSupply]) -> Vec<DeviceSupply> {
    let position =
        |node: Option<u32>| node.and_then(|node| nodes.iter().position(|own| own.index == node)).map(|at| at as u32);
    let mut supplies: Vec<DeviceSupply> = Vec::new();
    let mut add = |kind: DeviceKind, node: Option<u32>, function: Option<PciAddress>| {
        let at = supplies.iter().position(|supply| supply.kind == kind && supply.node == node);
        let at = at.unwrap_or_else(|| {
            supplies.push(DeviceSupply { kind, node, functions: Vec::new(), free: 0 });
            supplies.len() - 1
        });
        supplies[at].functions.extend(function);
        supplies[at].free += 1;
    };
    let named = |address: PciAddress| host.network_interfaces.iter().find(|interface| interface.pci == Some(address));
    for device in offered(host, ledger, meant) {
        let kind = match (device.physical_function, device.class, device.vendor, device.device) {
            (Some(parent), ..) => {
                let of = named(parent).map_or_else(|| parent.to_string(), |interface| interface.name.clone());
                DeviceKind::VirtualFunctions { of }
            }
            (None, Some(class), Some(vendor), Some(id)) => {
                DeviceKind::Function { vendor, device: id, class: (class >> 8) as u16 }
            }
            _ => continue,
        };
        add(kind, position(device.node), Some(device.address));
    }
    for interface in &host.network_interfaces {
        add(DeviceKind::Shared { name: interface.name.clone() }, position(interface.node), None);
    }
    for disk in host.block_devices.iter().filter(|disk| disk.partition_of.is_none()) {
        add(DeviceKind::Shared { name: disk.name.clone() }, position(disk.node), None);
    }
    supplies
}

/// PUs of an isolated partition that is the guests' own: where libvirt's guests are, these are theirs alone.
fn of_guests_partition(host: &Host) -> CpuSet {
    let own = host.cpusets.iter().filter(|set| set.is_isolated());
    let own = own.filter(|set| set.path == "/machine.slice" || set.path.starts_with("/machine.slice/"));
    own.filter_map(|set| set.effective_cpus.as_ref()).fold(CpuSet::new(), |all, cpus| all.union(cpus))
}

/// Functions that VMs can be given: those that neither the host nor a guest uses, of groups that neither uses. VFIO opens
/// a group once: of each there are the functions meant for one VM, or else one, rather a graphics card than its sound.
fn offered<'a>(host: &'a Host, ledger: &Ledger, meant: &Meant) -> Vec<&'a PciDevice> {
    let vm = |device: &PciDevice| meant.get(&device.address);
    let is_used = |device: &PciDevice| {
        // One with a drive or an interface is not handed out whole, used or not.
        let whole = device.physical_function.is_none();
        let kept = whole && (device.iommu_group.is_none() || !assignable::names(host, device.address).is_empty());
        // The firmware's display stays called the console when the host has bound it to vfio for a VM.
        let given_up = device.vfio_driver().is_some();
        let uses = assignable::uses(host, ledger, device.address);
        let is_in_the_way = |use_of: &Obstacle| match use_of {
            Obstacle::Console => !given_up,
            // NetworkManager brings each up that it finds; libvirt takes it from the host's driver.
            Obstacle::InterfaceUp { .. } => whole,
            _ => true,
        };
        kept || ledger.may_be_held(device.address) || uses.iter().any(is_in_the_way)
    };
    let group_is_used = |device: &PciDevice| {
        let others = host.pci_devices.iter().filter(|other| other.address != device.address);
        // libvirt takes the drivers of functions that go to the same VM.
        let same_vm = |other: &PciDevice| vm(device).is_some() && vm(device) == vm(other);
        others
            .filter(|other| other.iommu_group == device.iommu_group)
            .any(|other| ledger.may_be_held(other.address) || (assignable::stays_with_host(other) && !same_vm(other)))
    };
    let is_free = |device: &&PciDevice| {
        !device.is_bridge() && !is_used(device) && (device.iommu_group.is_none() || !group_is_used(device))
    };
    let mut offered: Vec<&PciDevice> = host.pci_devices.iter().filter(is_free).collect();
    let mut first: BTreeMap<u32, (usize, bool, PciAddress)> = BTreeMap::new();
    for device in &offered {
        let Some(group) = device.iommu_group else { continue };
        let own = (vm(device).copied().unwrap_or(usize::MAX), device.kind().is_none(), device.address);
        first.entry(group).and_modify(|best| *best = own.min(*best)).or_insert(own);
    }
    offered.retain(|device| {
        let first = device.iommu_group.and_then(|group| first.get(&group));
        first.is_none_or(|(number, _, address)| *address == device.address || vm(device) == Some(number))
    });
    offered
}

/// The virtual functions that the host uses itself, in a sentence: whoever counts free ones would miss them.
fn left_to_host(host: &Host, ledger: &Ledger) -> Option<String> {
    let all = host.pci_devices.iter().filter(|device| device.physical_function.is_some());
    let mut used = all.filter_map(|device| {
        let mut obstacles = assignable::uses(host, ledger, device.address).into_iter();
        let obstacle = obstacles.find(|use_of| !matches!(use_of, Obstacle::InterfaceUp { .. }))?;
        Some(format!("{} ({obstacle})", device.address))
    });
    let first = used.next()?;
    let more = match used.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Some(format!("virtual functions that the host uses are left to it: {first}{more}"))
}
