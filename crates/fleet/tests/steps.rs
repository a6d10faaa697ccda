//! The way from what runs to a plan: no step breaks a rule, and the last one ends at the plan.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
#[path = "common/random.rs"]
mod random;

use common::{host, vm};
use nearmetal_fleet::*;
use nearmetal_units::Bytes;
use proptest::prelude::*;

/// Plans, and has everybody run and be movable as planned, but with the places of these pairs exchanged.
fn running(mut fleet: Fleet, exchanged: &[(usize, usize)]) -> (Fleet, FleetPlan) {
    let before = plan(&fleet, &common::steps(500)).unwrap();
    for vm in &mut fleet.vms {
        vm.movable = true;
        vm.current = before.placements.iter().find(|placement| placement.vm == vm.name).cloned();
    }
    for (one, other) in exchanged {
        let (first, second) = (fleet.vms[*one].current.take(), fleet.vms[*other].current.take());
        let named =
            |place: Option<VmPlacement>, vm: &Vm| place.map(|place| VmPlacement { vm: vm.name.clone(), ..place });
        fleet.vms[*one].current = named(second, &fleet.vms[*one]);
        fleet.vms[*other].current = named(first, &fleet.vms[*other]);
    }
    (fleet, before)
}

/// Walks the steps and looks at every state between them, and at both places of a VM that moves.
#[track_caller]
fn walked(fleet: &Fleet, plan: &FleetPlan) -> Steps {
    let steps = steps(fleet, plan).unwrap();
    for count in 0..=steps.steps.len() {
        assert_eq!(check(fleet, &in_force(fleet, &steps.after(fleet, count))), [], "after {count} of {steps:#?}");
    }
    for (count, step) in steps.steps.iter().enumerate() {
        let now = steps.after(fleet, count);
        let (Some(from), Some(to)) = (now.iter().find(|now| now.vm == step.vm), &step.to) else { continue };
        let shares = |cell: &CellPlacement| to.cells.iter().any(|new| from.host == to.host && new.node == cell.node);
        if from.cells.iter().any(shares) || step.swaps_devices || !from.devices.is_empty() {
            continue;
        }
        // Nothing is in common: the old place is another VM's as long as the step lasts.
        let mut both = fleet.clone();
        let asked = both.vms.iter().find(|vm| vm.name == step.vm).unwrap().clone();
        both.vms.push(Vm { name: "old".to_owned(), groups: Vec::new(), ..asked });
        let mut places: Vec<VmPlacement> = now.iter().filter(|now| now.vm != step.vm).cloned().collect();
        places.extend([to.clone(), VmPlacement { vm: "old".to_owned(), ..from.clone() }]);
        assert_eq!(check(&both, &in_force(&both, &places)), [], "during {step}");
    }
    let end = steps.after(fleet, steps.steps.len());
    assert_eq!(end.len(), plan.placements.len());
    for (end, goal) in end.iter().zip(&plan.placements) {
        assert_eq!((&end.vm, &end.host, &end.cells), (&goal.vm, &goal.host, &goal.cells));
    }
    steps
}

fn words(steps: &Steps) -> Vec<String> {
    steps.steps.iter().map(ToString::to_string).collect()
}

fn two_that_change_places(nodes: u32) -> (Fleet, FleetPlan) {
    let vms = vec![vm("a", 4, 4), vm("b", 4, 4)];
    running(Fleet { vms, hosts: vec![host("one", nodes, 4, 1, 4, 0)], ..Fleet::default() }, &[(0, 1)])
}

#[test]
fn two_vms_change_places_by_a_free_node() {
    let (fleet, plan) = two_that_change_places(3);
    let steps = walked(&fleet, &plan);
    assert_eq!(steps.shut_down, [] as [String; 0]);
    assert_eq!(
        words(&steps),
        [
            "move `a` to node 2 of `one`, 4 GiB with it: aside, so that `b` can go to its place",
            "move `b` to node 1 of `one`, 4 GiB with it: its place in the plan is free",
            "move `a` to node 0 of `one`, 4 GiB with it: its place in the plan is free",
        ]
    );
}

#[test]
fn where_no_place_is_free_one_is_shut_down_and_named() {
    let (fleet, plan) = two_that_change_places(2);
    let steps = walked(&fleet, &plan);
    assert_eq!(steps.shut_down, ["a"]);
    assert_eq!(
        words(&steps),
        [
            "shut `a` down on `one`: `b` cannot move before, it cannot either, and no place is free to step aside to",
            "move `b` to node 1 of `one`, 4 GiB with it: its place in the plan is free",
            "start `a` on `one`: its place is free now",
        ]
    );
}

#[test]
fn memory_goes_only_where_it_is_free_before() {
    let vms = vec![vm("a", 2, 6)];
    let (mut fleet, plan) = running(Fleet { vms, hosts: vec![host("one", 2, 4, 1, 8, 0)], ..Fleet::default() }, &[]);
    let current = fleet.vms[0].current.as_mut().unwrap();
    current.cells[0].node = 1;
    current.cells[0].pus = vec![4, 5];
    fleet.vms.push(vm("b", 2, 6));
    let mut plan = FleetPlan { objective: Objective::default(), ..plan };
    plan.placements.push(VmPlacement { vm: "b".to_owned(), ..fleet.vms[0].current.clone().unwrap() });
    let steps = walked(&fleet, &plan);
    assert_eq!(
        steps.steps.iter().map(|step| step.action.clone()).collect::<Vec<_>>(),
        [
            Action::Move { host: "one".to_owned(), memory: Bytes::from_mib(6 << 10) },
            Action::Start { host: "one".to_owned() },
        ]
    );
}

#[test]
fn who_has_no_place_any_more_is_shut_down_first_and_a_foreign_plan_is_refused() {
    let vms = vec![vm("small", 2, 2), Vm { priority: 1, ..vm("large", 4, 2) }];
    let mut fleet = Fleet { vms, hosts: vec![host("one", 1, 4, 1, 8, 0)], ..Fleet::default() };
    let planned = plan(&fleet, &common::steps(500)).unwrap();
    let alone = Fleet { vms: vec![fleet.vms[0].clone()], ..fleet.clone() };
    let before = plan(&alone, &common::steps(500)).unwrap();
    fleet.vms[0].current = Some(before.placements[0].clone());
    fleet.vms[0].movable = true;
    assert_eq!(
        words(&walked(&fleet, &planned)),
        [
            "shut `small` down on `one`: the plan has no place for it",
            "start `large` on `one`: the plan has a place for it"
        ]
    );
    let error = steps(&alone, &planned).unwrap_err().to_string();
    assert!(error.starts_with("the plan is not for this fleet: "), "{error}");
}

#[test]
fn functions_that_are_held_are_not_given_to_others_and_stay_with_their_vm() {
    let functions: Vec<nearmetal_units::PciAddress> =
        ["0000:01:00.1", "0000:01:00.2"].iter().map(|text| text.parse().unwrap()).collect();
    let kind = DeviceKind::VirtualFunctions { of: "eth0".to_owned() };
    let mut one = host("one", 1, 4, 1, 8, 0);
    one.devices = vec![DeviceSupply { kind, node: Some(0), functions: functions.clone(), free: 2 }];
    let wants = |name: &str| {
        let selector = DeviceSelector::VirtualFunction { of: None };
        let demand = DeviceDemand { selector, count: 1, locality: Locality::Required };
        Vm { devices: vec![demand], ..vm(name, 1, 1) }
    };
    let alone = Fleet { vms: vec![wants("a")], hosts: vec![one], ..Fleet::default() };
    let mut current = plan(&alone, &common::steps(10)).unwrap().placements[0].clone();
    current.devices[0].functions = vec![functions[1]];
    for movable in [false, true] {
        let mut both = Fleet { vms: vec![wants("a"), wants("b")], ..alone.clone() };
        (both.vms[0].current, both.vms[0].movable) = (Some(current.clone()), movable);
        let plan = plan(&both, &common::steps(100)).unwrap();
        assert_eq!(check(&both, &plan), []);
        let given = |at: usize| plan.placements[at].devices[0].functions.clone();
        assert_eq!((given(0), given(1)), (vec![functions[1]], vec![functions[0]]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_step_keeps_the_rules_and_the_last_ends_at_the_plan(
        seed in 0u64..1_000_000,
        exchanged in proptest::collection::vec((0usize..12, 0usize..12), 0..4),
        leaves in 0usize..4,
    ) {
        let mut fleet = random::random_fleet(seed);
        // Alike in pairs, so that places can be exchanged.
        for at in 1..fleet.vms.len() {
            if at % 3 > 0 {
                fleet.vms[at] = Vm { name: fleet.vms[at].name.clone(), ..fleet.vms[at - 1].clone() };
            }
        }
        let same = |one: usize, other: usize| {
            one != other && other < fleet.vms.len() && one / 3 == other / 3 && one < fleet.vms.len()
        };
        let pairs: Vec<(usize, usize)> = exchanged.into_iter().filter(|(one, other)| same(*one, *other)).collect();
        let (mut fleet, before) = running(fleet, &pairs);
        // The plan everybody was placed by: pure exchanges.
        walked(&fleet, &before);
        // And another one, after some have left.
        for _ in 0..leaves.min(fleet.vms.len() - 1) {
            fleet.vms.remove(seed as usize % fleet.vms.len());
        }
        let after = plan(&fleet, &Options { seed, ..common::steps(300) }).unwrap();
        walked(&fleet, &after);
    }
}
