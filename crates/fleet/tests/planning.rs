//! Plans of small fleets, each for one thing that must come out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{host, steps, vm};
use nearmetal_fleet::*;
use nearmetal_host::ledger;
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize};

#[track_caller]
fn planned(fleet: &Fleet) -> FleetPlan {
    let plan = plan(fleet, &steps(2000)).unwrap();
    assert_eq!(check(fleet, &plan), []);
    plan
}

fn fleet(vms: Vec<Vm>, hosts: Vec<FleetHost>) -> Fleet {
    Fleet { vms, hosts, ..Fleet::default() }
}

#[test]
fn thirty_two_vms_of_a_nodes_size_get_a_node_each() {
    let vms = (0..32).map(|index| vm(format!("vm{index}"), 8, 8)).collect();
    let plan = planned(&fleet(vms, vec![host("uv", 32, 8, 1, 16, 0)]));
    let nodes: std::collections::BTreeSet<u32> =
        plan.placements.iter().map(|placement| placement.cells[0].node).collect();
    assert_eq!((plan.placements.len(), nodes.len()), (32, 32));
    assert_eq!(plan.headline, "optimal");
}

#[test]
fn a_vm_larger_than_a_node_mirrors_the_nodes_it_gets() {
    let mut wide = vm("wide", 160, 160);
    wide.numa = GuestNuma::Mirror;
    let plan = planned(&fleet(vec![wide], vec![host("uv", 32, 8, 1, 16, 0)]));
    let cells = &plan.placements[0].cells;
    assert_eq!(cells.len(), 20);
    assert!(cells.iter().all(|cell| cell.vcpus == 8 && cell.memory == cells[0].memory));
}

#[test]
fn a_guest_that_sees_its_nodes_has_vcpus_and_memory_on_each() {
    let mut one = host("one", 2, 16, 1, 100, 0);
    one.nodes[0].memory = Bytes::from_mib(10 << 10);
    let asked = |numa: GuestNuma, host: &FleetHost| fleet(vec![Vm { numa, ..vm("wide", 8, 105) }], vec![host.clone()]);
    let hidden = planned(&asked(GuestNuma::Hidden, &one));
    assert!(hidden.placements[0].cells.iter().any(|cell| cell.vcpus == 0));
    let breaches: Vec<String> = check(&asked(GuestNuma::Mirror, &one), &hidden).into_iter().map(|one| one.0).collect();
    assert_eq!(breaches, ["wide sees its nodes, and has only vCPUs or only memory on one of them"]);
    let plan = planned(&asked(GuestNuma::Mirror, &one));
    assert_eq!(plan.placements, []);
    assert_eq!(plan.refusals[0].remedy.as_ref().unwrap().change, "5 GiB more free memory on node 1");
    one.nodes[0].memory = Bytes::from_mib(60 << 10);
    let plan = planned(&asked(GuestNuma::Mirror, &one));
    let cells = &plan.placements[0].cells;
    assert!(cells.len() == 2 && cells.iter().all(|cell| cell.vcpus > 0 && cell.memory > Bytes::ZERO), "{cells:?}");
}

#[test]
fn memory_comes_from_the_nearest_node_where_its_own_has_none() {
    let mut bare = host("bare", 4, 4, 1, 8, 0);
    bare.nodes[2].memory = Bytes::ZERO;
    bare.nodes.iter_mut().filter(|node| node.index != 2).for_each(|node| node.cores.clear());
    let plan = planned(&fleet(vec![vm("vm", 4, 4)], vec![bare]));
    let cells: Vec<(u32, u32, u64)> =
        plan.placements[0].cells.iter().map(|cell| (cell.node, cell.vcpus, cell.memory.get() >> 30)).collect();
    assert_eq!(cells, [(2, 4, 0), (3, 0, 4)]);
}

#[test]
fn a_wide_vm_is_not_kept_out_by_small_ones() {
    let mut vms: Vec<Vm> = (0..8).map(|index| vm(format!("small{index}"), 1, 1)).collect();
    vms.push(vm("wide", 8, 8));
    let plan = planned(&fleet(vms, vec![host("one", 2, 8, 1, 16, 0)]));
    assert_eq!(plan.refusals, []);
    assert_eq!(plan.headline, "optimal");
}

#[test]
fn a_vm_that_requires_its_device_is_on_its_node_and_others_keep_away() {
    let mut one = host("one", 2, 4, 1, 16, 0);
    let kind = DeviceKind::VirtualFunctions { of: "eth2".to_owned() };
    one.devices = vec![DeviceSupply { kind, node: Some(0), functions: Vec::new(), free: 1 }];
    let selector = DeviceSelector::VirtualFunction { of: Some("eth2".to_owned()) };
    let wants = |name: &str| {
        let mut vm = vm(name, 2, 2);
        vm.devices = vec![DeviceDemand { selector: selector.clone(), count: 1, locality: Locality::Required }];
        vm
    };
    let plain = planned(&fleet(vec![vm("plain", 2, 2)], vec![one.clone()]));
    assert_eq!(plain.placements[0].cells[0].node, 1);
    let plan = planned(&fleet(vec![wants("first"), wants("second")], vec![one]));
    assert_eq!((plan.placements[0].vm.as_str(), plan.placements[0].cells[0].node), ("first", 0));
    let remedy = plan.refusals[0].remedy.as_ref().unwrap();
    assert_eq!((remedy.host.as_str(), remedy.change.as_str()), ("one", "1 more free VF of eth2"));
}

#[test]
fn a_refusal_names_the_pages_that_are_missing() {
    let mut asked = vm("vm", 2, 6);
    asked.page_size = Some(PageSize::HUGE_1G);
    asked.numa = GuestNuma::Cells(1);
    let plan = planned(&fleet(vec![asked], vec![host("one", 2, 4, 1, 16, 4)]));
    assert_eq!(plan.refusals[0].remedy.as_ref().unwrap().change, "2 more 1 GiB pages on node 0");
}

#[test]
fn isolated_vcpus_have_cores_to_themselves() {
    let mut asked = vm("quiet", 3, 2);
    asked.smt = SmtPolicy::Isolate;
    let plan = planned(&fleet(vec![asked, vm("other", 2, 2)], vec![host("one", 1, 4, 2, 16, 0)]));
    let cell = &plan.placements[0].cells[0];
    assert_eq!((cell.pus.len(), cell.idle.len()), (3, 3));
    assert_eq!(plan.refusals, []);
}

#[test]
fn groups_keep_apart_and_together() {
    let member = |name: &str, rule: Together| {
        let mut vm = vm(name, 1, 1);
        vm.groups = vec![GroupRule { group: format!("{rule:?}"), scope: Scope::Host, rule }];
        vm
    };
    let vms = vec![
        member("a", Together::Apart),
        member("b", Together::Apart),
        member("c", Together::Together),
        member("d", Together::Together),
        member("e", Together::Apart),
    ];
    let plan = planned(&fleet(vms, vec![host("one", 1, 4, 1, 8, 0), host("two", 1, 4, 1, 8, 0)]));
    assert_eq!(plan.refusals.len(), 1);
    assert!(plan.refusals[0].reason.contains("group"), "{}", plan.refusals[0].reason);
}

#[test]
fn density_floats_and_says_why() {
    let mut asked = vm("desk", 2, 2);
    asked.class = WorkloadClass::Density;
    let plan = planned(&fleet(vec![asked], vec![host("one", 1, 4, 1, 8, 0)]));
    assert_eq!(plan.placements[0].floating, Some(Floating::Density));
    assert!(plan.placements[0].cells[0].pus.is_empty());
}

#[test]
fn shared_vcpus_are_held_to_their_ratio() {
    let shared = |index: u32| {
        let mut vm = vm(format!("vm{index}"), 4, 1);
        vm.cpus = CpuSharing::Shared { ratio_percent: 400 };
        vm
    };
    let plan = planned(&fleet((0..5).map(shared).collect(), vec![host("one", 1, 4, 1, 8, 0)]));
    assert_eq!((plan.placements.len(), plan.refusals.len()), (4, 1));
}

#[test]
fn what_if_takes_hosts_and_threads_away() {
    let asked = fleet(
        (0..4).map(|index| vm(format!("vm{index}"), 4, 2)).collect(),
        vec![host("one", 1, 4, 2, 16, 0), host("two", 1, 4, 2, 16, 0)],
    );
    assert_eq!(planned(&asked).refusals.len(), 0);
    let fewer = asked.what_if(&WhatIf::RemoveHost("two".to_owned())).unwrap();
    assert_eq!(planned(&fewer).refusals.len(), 2);
    let slower = asked.what_if(&WhatIf::SmtOff(None)).unwrap();
    assert_eq!(planned(&slower).refusals.len(), 2);
    let more = asked.what_if(&WhatIf::AddVm(Box::new(vm("more", 1, 1)))).unwrap();
    assert_eq!(planned(&more).refusals.len(), 1);
    assert!(asked.what_if(&WhatIf::RemoveHost("three".to_owned())).is_err());
}

#[test]
fn a_host_gives_what_its_ledger_leaves() {
    let machine = Synthetic::new().packages(2).cores_per_node(4).threads(2).numbering(Numbering::Split);
    let machine = machine.pool(PageSize::HUGE_2M, 64).network(1, 7, 3).build();
    let supply = FleetHost::of("one", &machine, &ledger::of(&machine, &[]), &Reserve::default());
    // The first core is the host's.
    assert_eq!(supply.nodes[0].housekeeping.to_string(), "0,8");
    assert_eq!(supply.nodes.iter().map(|node| node.cores.len()).collect::<Vec<_>>(), [3, 4]);
    let functions = supply.devices.iter().find(|device| matches!(device.kind, DeviceKind::VirtualFunctions { .. }));
    assert_eq!(functions.map(|supply| (supply.node, supply.free)), Some((Some(1), 3)));
    let mut asked = vm("vm", 4, 1);
    asked.page_size = Some(PageSize::HUGE_2M);
    let plan = planned(&fleet(vec![asked], vec![supply]));
    assert_eq!(plan.pools.iter().map(|change| change.add).collect::<Vec<_>>(), [512 - 64]);
}

#[test]
fn a_vm_that_runs_stays_and_the_next_goes_beside_it() {
    let before = planned(&fleet(vec![vm("first", 3, 2)], vec![host("one", 1, 4, 2, 16, 0)]));
    let mut first = vm("first", 3, 2);
    first.current = Some(before.placements[0].clone());
    let plan = planned(&fleet(vec![first, vm("second", 5, 2)], vec![host("one", 1, 4, 2, 16, 0)]));
    assert_eq!(plan.placements[0].cells, before.placements[0].cells);
    assert_eq!(plan.refusals, []);
}

#[test]
fn fleets_that_make_no_sense_are_refused_with_the_number() {
    let twice = fleet(vec![vm("vm", 1, 1), vm("vm", 1, 1)], Vec::new());
    assert_eq!(
        plan(&twice, &steps(1)).unwrap_err().to_string(),
        "two VMs are named `vm`: names must be unique in a fleet"
    );
    let none = fleet(vec![vm("vm", 0, 1)], Vec::new());
    assert_eq!(plan(&none, &steps(1)).unwrap_err().to_string(), "VM `vm`: vcpus is 0; give 1 to 65536");
    let many =
        fleet((0..9).map(|index| Vm { priority: index, ..vm(format!("vm{index}"), 1, 1) }).collect(), Vec::new());
    assert_eq!(plan(&many, &steps(1)).unwrap_err().to_string(), "the fleet has 9 different priorities; 8 at most");
}

#[test]
fn the_checker_finds_what_is_broken() {
    let asked = fleet(vec![vm("a", 2, 2), vm("b", 2, 2)], vec![host("one", 1, 4, 1, 8, 0)]);
    let good = planned(&asked);
    let broken = |change: &dyn Fn(&mut FleetPlan)| {
        let mut plan = good.clone();
        change(&mut plan);
        !check(&asked, &plan).is_empty()
    };
    assert!(broken(&|plan| plan.placements[1].cells[0].pus = plan.placements[0].cells[0].pus.clone()));
    assert!(broken(&|plan| plan.placements[0].cells[0].pus[0] = 77));
    assert!(broken(&|plan| plan.placements[0].cells[0].memory = Bytes::from_mib(1 << 20)));
    assert!(broken(&|plan| plan.placements[0].host = "two".to_owned()));
    assert!(broken(&|plan| drop(plan.placements.pop())));
    assert!(broken(&|plan| plan.objective.levels[0].value += 1));
    assert!(broken(&|plan| plan.objective.levels[4].bound += 9));
}

#[test]
fn vms_of_bandwidth_have_a_node_each_as_far_as_there_are_nodes() {
    let nodes = |class: WorkloadClass, count: u32| {
        let vms = (0..count).map(|index| Vm { class, ..vm(format!("vm{index}"), 2, 2) }).collect();
        let plan = planned(&fleet(vms, vec![host("one", 3, 8, 1, 16, 0)]));
        let mut nodes: Vec<u32> = plan.placements.iter().map(|placement| placement.cells[0].node).collect();
        nodes.sort_unstable();
        (nodes, plan.objective.value(LevelId::SharedBandwidth))
    };
    assert_eq!(nodes(WorkloadClass::General, 3), (vec![0, 0, 0], Some(0)));
    assert_eq!(nodes(WorkloadClass::Throughput, 3), (vec![0, 1, 2], Some(0)));
    assert_eq!(nodes(WorkloadClass::Latency, 4).1, Some(0));
    // One that must be beside its device, where another of them has to be too.
    let mut one = host("one", 2, 8, 1, 16, 0);
    let kind = DeviceKind::VirtualFunctions { of: "eth0".to_owned() };
    one.devices = vec![DeviceSupply { kind, node: Some(1), functions: Vec::new(), free: 2 }];
    let selector = DeviceSelector::VirtualFunction { of: None };
    let demand = DeviceDemand { selector, count: 1, locality: Locality::Required };
    let wants = |name: &str| Vm { class: WorkloadClass::Throughput, devices: vec![demand.clone()], ..vm(name, 2, 2) };
    let plan = planned(&fleet(vec![wants("a"), wants("b")], vec![one]));
    assert_eq!(plan.objective.value(LevelId::SharedBandwidth), Some(1));
}

#[test]
fn functions_and_large_pages_are_not_left_where_no_pu_is() {
    let mut one = host("one", 2, 4, 1, 16, 0);
    one.nodes[0].pools[0].free = 4;
    let plain = planned(&fleet(vec![vm("plain", 4, 4)], vec![one.clone()]));
    assert_eq!(plain.placements[0].cells[0].node, 1);
    assert_eq!(plain.objective.value(LevelId::Stranded), Some(0));
    let kind = DeviceKind::VirtualFunctions { of: "eth0".to_owned() };
    one.devices = vec![DeviceSupply { kind, node: Some(0), functions: Vec::new(), free: 3 }];
    let both = planned(&fleet(vec![vm("a", 4, 4), vm("b", 4, 4)], vec![one.clone()]));
    assert_eq!(both.objective.value(LevelId::Stranded), Some(3 + 4));
    // No memory is left: functions are of no use, pages there are none.
    one.nodes[0].pools[0].free = 0;
    one.nodes.truncate(1);
    let full = planned(&fleet(vec![vm("a", 2, 16)], vec![one]));
    assert_eq!(full.objective.value(LevelId::Stranded), Some(3));
}

#[test]
fn together_on_a_node_is_on_the_same_nodes_or_nowhere() {
    let member = |name: &str, cells: u32| {
        let group = GroupRule { group: "pair".to_owned(), scope: Scope::Node, rule: Together::Together };
        Vm { numa: GuestNuma::Cells(cells), groups: vec![group], ..vm(name, 2, 1) }
    };
    let asked = |cells: u32| fleet(vec![member("a", 2), member("b", cells)], vec![host("one", 2, 4, 1, 8, 0)]);
    assert_eq!(planned(&asked(2)).refusals, []);
    assert_eq!(planned(&asked(1)).refusals.len(), 1);
}
