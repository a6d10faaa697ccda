//! What a host has left to give, from its model.

use nearmetal_host::ledger::Ledger;
use nearmetal_host::{Host, NumaNode};
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

impl FleetHost {
    /// From a host and what its ledger says others hold. PUs that are offline or isolated from the scheduler are left
    /// out, and so are those a vCPU is bound to and devices in use; memory is what is free now.
    pub fn of(name: impl Into<String>, host: &Host, ledger: &Ledger, reserve: &Reserve) -> Self {
        let mut unknown: Vec<String> = ledger.unknown.iter().map(|what| format!("not known: {what}")).collect();
        let free = ledger.free.difference(host.system.isolated.as_ref().unwrap_or(&CpuSet::new()));
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
        let devices = devices(host, ledger, &nodes);
        Self { name: name.into(), nodes, distances, devices, unknown, ..Self::default() }
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

fn devices(host: &Host, ledger: &Ledger, nodes: &[NodeSupply]) -> Vec<DeviceSupply> {
    let position =
        |node: Option<u32>| node.and_then(|node| nodes.iter().position(|own| own.index == node)).map(|at| at as u32);
    let held = |address: PciAddress| {
        ledger.devices.iter().any(|device| device.function == Some(address) && device.owner.is_some())
    };
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
    for device in &host.pci_devices {
        let node = position(device.node);
        if device.is_bridge() || held(device.address) {
            continue;
        }
        if let Some(parent) = device.physical_function {
            let of = named(parent).map_or_else(|| parent.to_string(), |interface| interface.name.clone());
            add(DeviceKind::VirtualFunctions { of }, node, Some(device.address));
            continue;
        }
        // A function in use by the host (a drive, an interface that is up) is not handed out whole.
        let disk = host.block_devices.iter().any(|disk| disk.pci == Some(device.address));
        let interface = named(device.address).is_some();
        let has_vfs = device.sriov.as_ref().is_some_and(|state| state.vfs > 0);
        if let (Some(class), Some(vendor), Some(id)) = (device.class, device.vendor, device.device) {
            if !disk && !interface && !has_vfs && device.iommu_group.is_some() {
                let kind = DeviceKind::Function { vendor, device: id, class: (class >> 8) as u16 };
                add(kind, node, Some(device.address));
            }
        }
    }
    for interface in &host.network_interfaces {
        add(DeviceKind::Shared { name: interface.name.clone() }, position(interface.node), None);
    }
    for disk in host.block_devices.iter().filter(|disk| disk.partition_of.is_none()) {
        add(DeviceKind::Shared { name: disk.name.clone() }, position(disk.node), None);
    }
    supplies
}
