//! Small fleets against a plain search through every place of every VM. It shares no code with the planner: it counts
//! PUs, memory, pages and devices by itself and leaves nothing out for being alike.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
#[path = "common/random.rs"]
mod random;

use common::steps;
use nearmetal_fleet::*;
use nearmetal_place::WorkloadClass;

/// One place a VM could have, and what it costs by itself.
struct Place {
    host: usize,
    nodes: Vec<usize>,
    slot: Option<usize>,
    remote: u64,
    devices: u64,
}

/// Unplaced vCPUs by priority (1, 0), then remote memory, remote devices, hosts, shared bandwidth, nodes.
type Levels = [u64; 7];

#[derive(Clone, Copy, Default)]
struct Left {
    pus: u64,
    gib: u64,
    pages: u64,
}

struct Search<'a> {
    fleet: &'a Fleet,
    places: Vec<Vec<Place>>,
    order: Vec<usize>,
    left: Vec<Vec<Left>>,
    slots: Vec<Vec<u32>>,
    vms_on: Vec<Vec<u32>>,
    heavy_on: Vec<Vec<u32>>,
    /// Cells of VMs of bandwidth not decided yet, by position.
    heavy_to_come: Vec<u64>,
    apart: Vec<bool>,
    levels: Levels,
    best: Levels,
}

fn gib(vm: &Vm) -> u64 {
    vm.memory.get() >> 30
}

fn unplaced(vm: &Vm) -> usize {
    usize::from(vm.priority == 0)
}

fn is_heavy(vm: &Vm) -> bool {
    matches!(vm.class, WorkloadClass::Throughput | WorkloadClass::Latency)
}

fn cells_of_bandwidth(vm: &Vm) -> u64 {
    let cells = if vm.numa == GuestNuma::Cells(2) { 2 } else { 1 };
    if is_heavy(vm) { cells } else { 0 }
}

fn places(fleet: &Fleet, vm: &Vm) -> Vec<Place> {
    let mut places = Vec::new();
    for (host, there) in fleet.hosts.iter().enumerate() {
        let count = there.nodes.len();
        let two = vm.numa == GuestNuma::Cells(2);
        let sets: Vec<Vec<usize>> = if two {
            (0..count).flat_map(|one| (one + 1..count).map(move |other| vec![one, other])).collect()
        } else {
            (0..count).map(|node| vec![node]).collect()
        };
        for nodes in sets {
            let away = if two { u64::from(there.distances[nodes[0]][nodes[1]] - 10) } else { 0 };
            let remote = gib(vm) * 512 * away;
            let Some(demand) = vm.devices.first() else {
                places.push(Place { host, nodes, slot: None, remote, devices: 0 });
                continue;
            };
            for (slot, supply) in there.devices.iter().enumerate() {
                let package = |node: usize| there.nodes[node].package;
                let away = match supply.node.map(|node| node as usize) {
                    Some(node) if nodes.contains(&node) => 0,
                    Some(node) if nodes.iter().any(|own| package(*own) == package(node)) => 1,
                    _ => 2,
                };
                let devices = match demand.locality {
                    Locality::Required if away > 0 => continue,
                    Locality::Far => 0,
                    _ => away,
                };
                places.push(Place { host, nodes: nodes.clone(), slot: Some(slot), remote, devices });
            }
        }
    }
    if let Some(current) = &vm.current {
        let nodes = |place: &Place| place.nodes.iter().map(|node| *node as u32).collect::<Vec<_>>();
        let cells: Vec<u32> = current.cells.iter().map(|cell| cell.node).collect();
        let slot = current.devices.first().map(|grant| grant.supply as usize);
        places.retain(|place| {
            fleet.hosts[place.host].name == current.host && nodes(place) == cells && place.slot == slot
        });
    }
    places.sort_by_key(|place| (place.remote, place.devices));
    places
}

/// The best there is at all levels, if it is better than `known`.
fn best(fleet: &Fleet, known: Levels) -> Levels {
    let mut order: Vec<usize> = (0..fleet.vms.len()).collect();
    order.sort_by_key(|vm| std::cmp::Reverse((fleet.vms[*vm].priority, fleet.vms[*vm].vcpus)));
    let left = |node: &NodeSupply| Left {
        pus: node.cores.iter().map(|core| core.free.len() as u64).sum(),
        gib: node.memory.get() >> 30,
        pages: node.pools[0].free,
    };
    let mut search = Search {
        fleet,
        places: fleet.vms.iter().map(|vm| places(fleet, vm)).collect(),
        left: fleet.hosts.iter().map(|host| host.nodes.iter().map(left).collect()).collect(),
        slots: fleet.hosts.iter().map(|host| host.devices.iter().map(|device| device.free).collect()).collect(),
        heavy_on: fleet.hosts.iter().map(|host| vec![0; host.nodes.len()]).collect(),
        heavy_to_come: (0..=order.len())
            .map(|at| order[at..].iter().map(|vm| cells_of_bandwidth(&fleet.vms[*vm])).sum())
            .collect(),
        vms_on: fleet.hosts.iter().map(|host| vec![0; host.nodes.len()]).collect(),
        apart: vec![false; fleet.hosts.len()],
        order,
        levels: [0; 7],
        best: known,
    };
    search.descend(0);
    search.best
}

impl Search<'_> {
    fn descend(&mut self, at: usize) {
        self.levels[5] = self.bandwidth();
        // Each cell to come can relieve one node at most.
        let mut least = self.levels;
        if self.fleet.spread == SpreadHosts::Most {
            // So can each VM open one host.
            let used = self.vms_on.iter().filter(|nodes| nodes.iter().any(|vms| *vms > 0)).count();
            self.levels[4] = (self.fleet.hosts.len() - used) as u64;
            least[4] = self.levels[4].saturating_sub((self.order.len() - at) as u64);
        }
        least[5] = least[5].saturating_sub(self.heavy_to_come[at]);
        if least >= self.best {
            return;
        }
        let Some(&index) = self.order.get(at) else {
            self.best = self.levels;
            return;
        };
        let vm = &self.fleet.vms[index];
        for place in 0..self.places[index].len() {
            let before = self.levels;
            if self.put(index, place) {
                self.descend(at + 1);
                self.take(index, place);
            }
            self.levels = before;
        }
        if vm.current.is_some() {
            return;
        }
        self.levels[unplaced(vm)] += u64::from(vm.vcpus);
        self.descend(at + 1);
        self.levels[unplaced(vm)] -= u64::from(vm.vcpus);
    }

    fn bandwidth(&self) -> u64 {
        let of_host = |nodes: &Vec<u32>| {
            let beyond: u32 = nodes.iter().map(|count| count.saturating_sub(1)).sum();
            u64::from(beyond.min(nodes.iter().filter(|count| **count == 0).count() as u32))
        };
        self.heavy_on.iter().map(of_host).sum()
    }

    fn need(&self, vm: usize, place: &Place) -> Left {
        let vm = &self.fleet.vms[vm];
        let parts = place.nodes.len() as u64;
        let threads = u64::from(self.fleet.hosts[place.host].nodes[place.nodes[0]].cores[0].threads);
        let each = u64::from(vm.vcpus) / parts;
        let gib = gib(vm) / parts;
        let pus = if vm.smt == SmtPolicy::Isolate { each * threads } else { each };
        if vm.page_size.is_some() { Left { pus, gib: 0, pages: gib } } else { Left { pus, gib, pages: 0 } }
    }

    fn put(&mut self, vm: usize, place: usize) -> bool {
        let place = &self.places[vm][place];
        let need = self.need(vm, place);
        let grouped = !self.fleet.vms[vm].groups.is_empty();
        let fits = place.nodes.iter().all(|node| {
            let left = self.left[place.host][*node];
            left.pus >= need.pus && left.gib >= need.gib && left.pages >= need.pages
        });
        if !fits
            || place.slot.is_some_and(|slot| self.slots[place.host][slot] == 0)
            || (grouped && self.apart[place.host])
        {
            return false;
        }
        self.apart[place.host] |= grouped;
        if let Some(slot) = place.slot {
            self.slots[place.host][slot] -= 1;
        }
        self.levels[2] += place.remote;
        self.levels[3] += place.devices;
        self.levels[4] += u64::from(self.vms_on[place.host].iter().all(|vms| *vms == 0));
        for node in &place.nodes {
            let left = &mut self.left[place.host][*node];
            (left.pus, left.gib, left.pages) = (left.pus - need.pus, left.gib - need.gib, left.pages - need.pages);
            self.vms_on[place.host][*node] += 1;
            self.heavy_on[place.host][*node] += u32::from(is_heavy(&self.fleet.vms[vm]));
            self.levels[6] += u64::from(self.vms_on[place.host][*node] == 1);
        }
        true
    }

    fn take(&mut self, vm: usize, place: usize) {
        let place = &self.places[vm][place];
        let need = self.need(vm, place);
        if !self.fleet.vms[vm].groups.is_empty() {
            self.apart[place.host] = false;
        }
        if let Some(slot) = place.slot {
            self.slots[place.host][slot] += 1;
        }
        for node in &place.nodes {
            let left = &mut self.left[place.host][*node];
            (left.pus, left.gib, left.pages) = (left.pus + need.pus, left.gib + need.gib, left.pages + need.pages);
            self.vms_on[place.host][*node] -= 1;
            self.heavy_on[place.host][*node] -= u32::from(is_heavy(&self.fleet.vms[vm]));
        }
    }
}

fn levels(plan: &FleetPlan, of: impl Fn(&LevelValue) -> u64) -> Levels {
    let ids = [
        LevelId::Unplaced { priority: 1 },
        LevelId::Unplaced { priority: 0 },
        LevelId::RemoteMemory,
        LevelId::RemoteDevices,
        LevelId::Hosts,
        LevelId::SharedBandwidth,
        LevelId::BrokenNodes,
    ];
    ids.map(|id| plan.objective.levels.iter().find(|entry| entry.level == id).map_or(0, &of))
}

/// Plans a fleet, holds it against the best there is, and says whether every level is proven.
#[track_caller]
fn is_proven(name: &str, fleet: &Fleet) -> bool {
    let plan = plan(fleet, &Options { seed: 1, ..steps(2000) }).unwrap();
    assert_eq!(check(fleet, &plan), [], "{name}");
    let (ours, bound) = (levels(&plan, |entry| entry.value), levels(&plan, |entry| entry.bound));
    let best = best(fleet, ours);
    assert_eq!(ours, best, "{name}");
    assert!(bound.iter().zip(&best).all(|(bound, best)| bound <= best), "{name}: {bound:?} above {best:?}");
    bound == ours
}

#[test]
fn small_fleets_are_planned_as_well_as_can_be_and_most_are_proven() {
    let proven = (0..300).filter(|seed| is_proven(&format!("fleet {seed}"), &random::random_fleet(*seed))).count();
    assert!(proven > 290, "{proven} of 300 are proven");
}

#[test]
fn so_are_fleets_that_are_to_be_spread() {
    for seed in 0..60 {
        let fleet = Fleet { spread: SpreadHosts::Most, ..random::random_fleet(seed) };
        is_proven(&format!("fleet {seed}, spread"), &fleet);
    }
}

#[test]
fn so_are_fleets_of_which_half_runs_and_stays() {
    for seed in 0..60 {
        let mut fleet = random::random_fleet(seed);
        // Whose cores are whole depends on who was there first: the search here counts PUs alone.
        fleet.vms.iter_mut().for_each(|vm| vm.smt = SmtPolicy::Prefer);
        let half = Fleet { vms: fleet.vms[..fleet.vms.len() / 2].to_vec(), ..fleet.clone() };
        let before = plan(&half, &Options { arrival: Arrival::Online, ..steps(0) }).unwrap();
        for placement in before.placements {
            fleet
                .vms
                .iter_mut()
                .filter(|vm| vm.name == placement.vm)
                .for_each(|vm| vm.current = Some(placement.clone()));
        }
        is_proven(&format!("fleet {seed}, half of it fixed"), &fleet);
    }
}
