//! From the fleet planner's answer for one VM to the placement that a host's plan is made of.
//!
//! The fleet planner decides host, nodes, PUs, pages and functions; what is the host's own business (disk engines,
//! iothreads) is decided here by the same code that plans a single host.

use std::collections::BTreeMap;

use nearmetal_fleet::{CellPlacement, DeviceGrant, DeviceSelector, Floating, GuestNuma, Vm, VmPlacement};
use nearmetal_host::Host;
use nearmetal_place::{
    DevicePlacement, FunctionKind, GuestCell, GuestRequest, MemoryPlacement, Placement, Policy, Reason, VcpuPin,
    disk_placements, wants_iothread,
};
use nearmetal_units::{CpuSet, MacAddress, NodeSet, PciAddress, VlanId};

/// Base class and subclass of an Ethernet controller (PCI Code and ID Assignment Specification).
const ETHERNET: u32 = 0x0200;

/// One VM with a place, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Seat<'a> {
    /// The host.
    pub host: &'a Host,
    /// What was asked.
    pub vm: &'a Vm,
    /// What was planned.
    pub planned: &'a VmPlacement,
    /// Name, UUID, disks and interfaces of the domain.
    pub request: &'a GuestRequest,
    /// PUs of each node that no VM owns after the plan: where shared vCPUs float.
    pub unowned: &'a BTreeMap<u32, CpuSet>,
    /// Address and VLAN of each network function, by demand.
    pub networks: &'a BTreeMap<u32, (Option<MacAddress>, Option<VlanId>)>,
    /// The operator's policy, as far as the fleet's plan leaves anything to it.
    pub policy: &'a Policy,
}

/// The placement of a VM on its host.
pub fn placement_of(seat: &Seat<'_>) -> Placement {
    let planned = seat.planned;
    let mut placement = Placement {
        guest: seat.request.name.clone(),
        uuid: seat.request.uuid.clone(),
        vcpus: Vec::new(),
        emulator: CpuSet::new(),
        iothreads: Vec::new(),
        memory: MemoryPlacement { nodes: NodeSet::default(), page_size: None, pages: 0 },
        disks: Vec::new(),
        networks: Vec::new(),
        cells: Vec::new(),
        devices: planned.devices.iter().flat_map(|grant| devices(seat, grant)).collect(),
        vhost: Vec::new(),
        interrupts: CpuSet::new(),
        threads_per_core: None,
        guest_polls: None,
        reasons: reasons(planned),
    };
    if planned.floating == Some(Floating::AloneAndSmall) {
        return placement;
    }
    placement.vcpus = pins(seat);
    let all = placement.vcpus.iter().fold(CpuSet::new(), |all, pin| all.union(&pin.cpus));
    placement.emulator = if planned.helpers.is_empty() { all.clone() } else { planned.helpers.clone() };
    if seat.policy.place_interrupts && !placement.devices.is_empty() {
        placement.interrupts = placement.emulator.difference(&all);
    }
    let iothreads = if wants_iothread(seat.request) { seat.policy.iothreads } else { 0 };
    placement.iothreads = vec![placement.emulator.clone(); iothreads as usize];
    let (disks, why) = disk_placements(seat.host, seat.policy, seat.request, iothreads);
    placement.disks = disks;
    placement.reasons.extend(why);
    placement.memory = MemoryPlacement {
        nodes: planned.cells.iter().filter(|cell| cell.memory.get() > 0).map(|cell| cell.node).collect(),
        page_size: planned.page_size,
        pages: planned.page_size.map_or(0, |size| planned.cells.iter().map(|cell| cell.memory.pages(size)).sum()),
    };
    placement.cells = cells(seat);
    placement.threads_per_core = threads_per_core(seat);
    placement
}

/// vCPU numbers go through the cells in order. A VM that shares PUs floats over those of its nodes that nobody owns.
fn pins(seat: &Seat<'_>) -> Vec<VcpuPin> {
    let mut pins = Vec::new();
    for cell in &seat.planned.cells {
        let floats = seat.unowned.get(&cell.node).cloned().unwrap_or_default();
        for at in 0..cell.vcpus as usize {
            let cpus = cell.pus.get(at).map_or_else(|| floats.clone(), |pu| CpuSet::one(*pu));
            pins.push(VcpuPin { vcpu: pins.len() as u32, cpus });
        }
    }
    pins
}

/// Cells are shown where the VM asked to see them and lies on several nodes; one cell tells a guest nothing.
fn cells(seat: &Seat<'_>) -> Vec<GuestCell> {
    let cells = &seat.planned.cells;
    if seat.vm.numa == GuestNuma::Hidden || cells.len() < 2 {
        return Vec::new();
    }
    let distance = |from: u32, to: u32| seat.host.node(from).and_then(|node| node.distance(to));
    let mut first = 0;
    let mut all = Vec::new();
    for cell in cells {
        let vcpus = (first..first + cell.vcpus).collect();
        first += cell.vcpus;
        // All or none: a guest that is told half of its distances is told something wrong.
        let distances: Option<Vec<u32>> = cells.iter().map(|other| distance(cell.node, other.node)).collect();
        all.push(GuestCell { vcpus, memory: cell.memory, node: cell.node, distances: distances.unwrap_or_default() });
    }
    all
}

/// Threads a core, if every core the VM is on is wholly its own and its PUs lie next to each other.
fn threads_per_core(seat: &Seat<'_>) -> Option<u32> {
    let of = |cell: &CellPlacement| {
        let first = *cell.pus.first()?;
        let threads = seat.host.cores.iter().find(|core| core.cpus.contains(first))?.cpus.len();
        let whole = threads > 1 && cell.pus.len() % threads == 0 && cell.pus.len() == cell.vcpus as usize;
        let together = |pus: &[u32]| {
            let core = seat.host.cores.iter().find(|core| core.cpus.contains(pus[0]));
            core.is_some_and(|core| pus.iter().all(|pu| core.cpus.contains(*pu)) && core.cpus.len() == threads)
        };
        (whole && cell.pus.chunks(threads).all(together)).then_some(threads as u32)
    };
    let with_vcpus: Vec<&CellPlacement> = seat.planned.cells.iter().filter(|cell| cell.vcpus > 0).collect();
    let threads = of(with_vcpus.first()?)?;
    with_vcpus.iter().all(|cell| of(cell) == Some(threads)).then_some(threads)
}

fn devices(seat: &Seat<'_>, grant: &DeviceGrant) -> Vec<DevicePlacement> {
    let cell = grant.node.and_then(|node| seat.planned.cells.iter().position(|cell| cell.node == node));
    let cell = cell.filter(|_| !cells(seat).is_empty()).map(|cell| cell as u32);
    let place = |function: &PciAddress| DevicePlacement {
        function: *function,
        kind: kind(seat, grant, *function),
        cell,
        node: grant.node,
    };
    grant.functions.iter().map(place).collect()
}

fn kind(seat: &Seat<'_>, grant: &DeviceGrant, function: PciAddress) -> FunctionKind {
    let device = seat.host.pci_devices.iter().find(|device| device.address == function);
    let is_virtual = matches!(grant.selector, DeviceSelector::VirtualFunction { .. })
        || device.is_some_and(|device| device.physical_function.is_some());
    let is_network = device.and_then(|device| device.class).is_some_and(|class| class >> 8 == ETHERNET);
    match (is_virtual, is_network) {
        (false, _) => FunctionKind::Whole,
        (true, false) => FunctionKind::Virtual,
        (true, true) => {
            let (mac, vlan) = seat.networks.get(&grant.demand).copied().unwrap_or_default();
            FunctionKind::NetworkVirtual { mac, vlan }
        }
    }
}

fn reasons(planned: &VmPlacement) -> Vec<Reason> {
    let nodes: NodeSet = planned.cells.iter().map(|cell| cell.node).collect();
    let choice = format!("node {nodes}");
    let reason = |because: &String| Reason {
        subject: "place".to_owned(),
        choice: choice.clone(),
        because: because.clone(),
        source: None,
    };
    planned.reasons.iter().map(reason).collect()
}
