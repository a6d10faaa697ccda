//! The rules of others, from their descriptions: what they do with CPUs, memory, devices and groups on the same fleet.
//!
//! Nova: nova/virt/hardware.py, `numa_fit_instance_to_host` (Apache-2.0; read, not copied), without the fault of its
//! caches: cells of the host sorted, the first permutation that fits, PCI looked at last. Between hosts its RAM and CPU
//! weighers, spreading (its default) or packing. OpenNebula: the host with least room that fits, each guest cell on the
//! node with least room. First fit and best fit are the textbook's.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use nearmetal_fleet::{DeviceKind, DeviceSelector, Fleet, GuestNuma, Scope, Together};

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    NovaSpread,
    NovaPack,
    /// Packing, the largest VM first: no longer online.
    NovaBiggestFirst,
    OpenNebula,
    FirstFit,
    BestFit,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] =
        [Self::NovaSpread, Self::NovaPack, Self::NovaBiggestFirst, Self::OpenNebula, Self::FirstFit, Self::BestFit];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NovaSpread => "Nova spread",
            Self::NovaPack => "Nova pack",
            Self::NovaBiggestFirst => "Nova biggest first",
            Self::OpenNebula => "OpenNebula",
            Self::FirstFit => "first fit",
            Self::BestFit => "best fit",
        }
    }

    pub(crate) fn is_online(self) -> bool {
        self != Self::NovaBiggestFirst
    }
}

/// Kinds of devices told apart: virtual functions, and whole functions.
const KINDS: usize = 2;

/// What a node has left. Memory in GiB or pages of 1 GiB.
#[derive(Debug, Clone, Copy)]
struct Node {
    pus: u64,
    memory: u64,
    devices: [u64; KINDS],
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Host and nodes of each VM.
    pub(crate) places: Vec<Option<(usize, Vec<usize>)>>,
    /// VMs placed before the first refusal.
    pub(crate) before_refusal: usize,
}

impl Outcome {
    pub(crate) fn placed(&self) -> usize {
        self.places.iter().flatten().count()
    }

    pub(crate) fn vcpus(&self, fleet: &Fleet) -> u64 {
        fleet.vms.iter().zip(&self.places).filter(|(_, place)| place.is_some()).map(|(vm, _)| u64::from(vm.vcpus)).sum()
    }

    pub(crate) fn hosts(&self) -> usize {
        self.places.iter().flatten().map(|(host, _)| host).collect::<std::collections::BTreeSet<_>>().len()
    }
}

struct Request {
    cells: Vec<(u64, u64)>,
    devices: [u64; KINDS],
}

/// Places a fleet by a rule.
pub(crate) fn place(fleet: &Fleet, rule: Rule) -> Outcome {
    let mut hosts: Vec<Vec<Node>> = fleet.hosts.iter().map(nodes_of).collect();
    let mut outcome = Outcome { places: vec![None; fleet.vms.len()], before_refusal: 0 };
    let mut order: Vec<usize> = (0..fleet.vms.len()).collect();
    if rule == Rule::NovaBiggestFirst {
        order.sort_by_key(|vm| Reverse((fleet.vms[*vm].vcpus, fleet.vms[*vm].memory)));
    }
    let mut members: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, vm) in fleet.vms.iter().enumerate() {
        vm.groups.iter().for_each(|group| members.entry(&group.group).or_default().push(index));
    }
    let mut refused = false;
    let mut free: Vec<(u64, u64)> = hosts.iter().map(|host| sums(host)).collect();
    for vm in order {
        let request = request_of(fleet, vm);
        let allowed = allowed(fleet, vm, &members, &outcome.places);
        let found = choose(&hosts, &free, &request, rule, &allowed);
        match found {
            Some((host, nodes)) => {
                for ((vcpus, memory), node) in request.cells.iter().zip(&nodes) {
                    hosts[host][*node].pus -= vcpus;
                    hosts[host][*node].memory -= memory;
                }
                for (kind, mut left) in request.devices.into_iter().enumerate() {
                    for node in &nodes {
                        let taken = left.min(hosts[host][*node].devices[kind]);
                        hosts[host][*node].devices[kind] -= taken;
                        left -= taken;
                    }
                }
                free[host] = sums(&hosts[host]);
                outcome.before_refusal += usize::from(!refused);
                outcome.places[vm] = Some((host, nodes));
            }
            None => refused = true,
        }
    }
    outcome
}

fn nodes_of(host: &nearmetal_fleet::FleetHost) -> Vec<Node> {
    let of = |(at, node): (usize, &nearmetal_fleet::NodeSupply)| Node {
        pus: node.cores.iter().map(|core| core.free.len() as u64).sum(),
        memory: (node.memory.get() >> 30) + node.pools.iter().map(|pool| pool.free).sum::<u64>(),
        devices: std::array::from_fn(|kind| {
            let there = host.devices.iter().filter(|device| device.node == Some(at as u32));
            let of_kind = there.filter(|device| match device.kind {
                DeviceKind::VirtualFunctions { .. } => kind == 0,
                DeviceKind::Function { .. } => kind == 1,
                DeviceKind::Shared { .. } => false,
            });
            of_kind.map(|device| u64::from(device.free)).sum()
        }),
    };
    host.nodes.iter().enumerate().map(of).collect()
}

fn sums(host: &[Node]) -> (u64, u64) {
    host.iter().fold((0, 0), |(pus, memory), node| (pus + node.pus, memory + node.memory))
}

fn request_of(fleet: &Fleet, vm: usize) -> Request {
    let vm = &fleet.vms[vm];
    let count = if let GuestNuma::Cells(count) = vm.numa { u64::from(count) } else { 1 };
    let (vcpus, memory) = (u64::from(vm.vcpus), vm.memory.get() >> 30);
    let part = |all: u64, cell: u64| (all * (cell + 1)).div_ceil(count) - (all * cell).div_ceil(count);
    Request {
        cells: (0..count).map(|cell| (part(vcpus, cell), part(memory, cell))).collect(),
        devices: std::array::from_fn(|kind| {
            let virtual_function = |demand: &&nearmetal_fleet::DeviceDemand| {
                matches!(demand.selector, DeviceSelector::VirtualFunction { .. }) == (kind == 0)
            };
            vm.devices.iter().filter(virtual_function).map(|demand| u64::from(demand.count)).sum()
        }),
    }
}

/// Hosts the VM's groups allow.
fn allowed(
    fleet: &Fleet,
    vm: usize,
    members: &BTreeMap<&str, Vec<usize>>,
    places: &[Option<(usize, Vec<usize>)>],
) -> Vec<bool> {
    if fleet.vms[vm].groups.is_empty() {
        return Vec::new();
    }
    let mut allowed = vec![true; fleet.hosts.len()];
    for group in &fleet.vms[vm].groups {
        for other in members.get(group.group.as_str()).into_iter().flatten() {
            let Some((there, _)) = places[*other].as_ref().filter(|_| *other != vm) else { continue };
            let theirs = fleet.vms[*other].groups.iter().find(|their| their.group == group.group);
            let same = |host: usize| match group.scope {
                Scope::FailureDomain => {
                    let domain = &fleet.hosts[host].failure_domain;
                    host == *there || (domain.is_some() && *domain == fleet.hosts[*there].failure_domain)
                }
                Scope::Host | Scope::Node => host == *there,
            };
            match (group.rule, theirs.map(|theirs| theirs.rule)) {
                (Together::Together, _) => (0..allowed.len()).for_each(|host| allowed[host] &= same(host)),
                (Together::Apart, _) => (0..allowed.len()).for_each(|host| allowed[host] &= !same(host)),
                (Together::ApartFromOtherLabels(mine), Some(Together::ApartFromOtherLabels(other)))
                    if mine != other =>
                {
                    (0..allowed.len()).for_each(|host| allowed[host] &= !same(host));
                }
                _ => {}
            }
        }
    }
    allowed
}

fn choose(
    hosts: &[Vec<Node>],
    free: &[(u64, u64)],
    request: &Request,
    rule: Rule,
    allowed: &[bool],
) -> Option<(usize, Vec<usize>)> {
    let (vcpus, memory) = request.cells.iter().fold((0, 0), |(v, m), (vcpus, memory)| (v + vcpus, m + memory));
    let (most_pus, most_memory) = free.iter().fold((1, 1), |(p, m), (pus, memory)| (p.max(*pus), m.max(*memory)));
    // What Nova's weighers compare: free RAM and free CPUs, each against the most there is.
    let weight = |host: usize| free[host].0 * 1_000_000 / most_pus + free[host].1 * 1_000_000 / most_memory;
    let mut best: Option<(u64, usize, Vec<usize>)> = None;
    for host in 0..hosts.len() {
        if free[host].0 < vcpus || free[host].1 < memory || (!allowed.is_empty() && !allowed[host]) {
            continue;
        }
        let rank = match rule {
            Rule::NovaSpread => u64::MAX - weight(host),
            Rule::FirstFit => host as u64,
            _ => weight(host),
        };
        if best.as_ref().is_some_and(|(other, ..)| *other <= rank) {
            continue;
        }
        if let Some(nodes) = fit(&hosts[host], request, rule) {
            best = Some((rank, host, nodes));
            if rule == Rule::FirstFit {
                break;
            }
        }
    }
    best.map(|(_, host, nodes)| (host, nodes))
}

/// Nodes for the cells, in order.
fn fit(host: &[Node], request: &Request, rule: Rule) -> Option<Vec<usize>> {
    let count = request.cells.len();
    if host.len() < count {
        return None;
    }
    let mut order: Vec<usize> = (0..host.len()).collect();
    let (nova, spread) = match rule {
        Rule::NovaSpread => (true, true),
        Rule::NovaPack | Rule::NovaBiggestFirst => (true, false),
        _ => (false, false),
    };
    if nova && host.len() > count {
        // Stable sorts: the last one rules.
        if spread {
            order.sort_by_key(|node| Reverse(host[*node].memory));
            order.sort_by_key(|node| Reverse(host[*node].pus));
        } else {
            order.sort_by_key(|node| host[*node].memory);
            order.sort_by_key(|node| host[*node].pus);
        }
        // Whatever their kind: Nova counts all free devices of a node.
        let devices = |node: &usize| host[*node].devices.iter().sum::<u64>();
        if request.devices != [0; KINDS] {
            order.sort_by_key(|node| Reverse(devices(node)));
        } else {
            order.sort_by_key(devices);
        }
    } else if matches!(rule, Rule::OpenNebula | Rule::BestFit) {
        order.sort_by_key(|node| (host[*node].pus, host[*node].memory));
    }
    let mut chosen = Vec::new();
    permute(host, request, &order, &mut chosen).then_some(chosen)
}

/// The first permutation that fits. Devices are looked at after a complete match: all on the VM's nodes together.
fn permute(host: &[Node], request: &Request, order: &[usize], chosen: &mut Vec<usize>) -> bool {
    let Some((vcpus, memory)) = request.cells.get(chosen.len()) else {
        let there = |kind: usize| chosen.iter().map(|node| host[*node].devices[kind]).sum::<u64>();
        return (0..KINDS).all(|kind| there(kind) >= request.devices[kind]);
    };
    for node in order {
        if chosen.contains(node) || host[*node].pus < *vcpus || host[*node].memory < *memory {
            continue;
        }
        chosen.push(*node);
        if permute(host, request, order, chosen) {
            return true;
        }
        chosen.pop();
    }
    false
}
