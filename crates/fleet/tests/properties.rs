//! What holds for any fleet.

mod common;

use common::{host, steps, vm};
use nearmetal_fleet::*;
use nearmetal_place::WorkloadClass;
use nearmetal_units::PageSize;
use proptest::prelude::*;

type Asked = (u32, u64, u32, u32, bool, i32, u32, u32);

fn vms() -> impl Strategy<Value = Vec<Vm>> {
    let one = (1u32..9, 1u64..9, 0u32..4, 0u32..6, any::<bool>(), 0i32..2, 0u32..6, 0u32..5);
    proptest::collection::vec(one, 1..12).prop_map(|list| {
        let make = |(index, (vcpus, gib, smt, numa, huge, priority, group, device)): (usize, Asked)| {
            let mut vm = vm(format!("vm{index}"), vcpus, gib);
            vm.smt = [SmtPolicy::Prefer, SmtPolicy::None, SmtPolicy::Isolate, SmtPolicy::Require][smt as usize];
            vm.numa = match numa {
                0 if vcpus > 1 => GuestNuma::Cells(2),
                1 => GuestNuma::Cells(1),
                2 => GuestNuma::Mirror,
                _ => GuestNuma::Hidden,
            };
            vm.page_size = huge.then_some(PageSize::HUGE_1G);
            vm.priority = priority;
            vm.class = [WorkloadClass::General, WorkloadClass::Throughput, WorkloadClass::Latency][(gib % 3) as usize];
            let rule = match group {
                0 => Some((Scope::Host, Together::Apart)),
                1 => Some((Scope::Host, Together::Together)),
                2 => Some((Scope::Node, Together::Apart)),
                4 => Some((Scope::Node, Together::Together)),
                3 => Some((Scope::FailureDomain, Together::ApartFromOtherLabels(vcpus % 2))),
                _ => None,
            };
            vm.groups.extend(rule.map(|(scope, rule)| GroupRule { group: format!("group{group}"), scope, rule }));
            let locality = [Locality::Required, Locality::Preferred, Locality::Far].get(device as usize);
            vm.devices.extend(locality.map(|locality| DeviceDemand {
                selector: DeviceSelector::VirtualFunction { of: None },
                count: 1,
                locality: *locality,
            }));
            if numa == 5 {
                vm.cpus = CpuSharing::Shared { ratio_percent: 300 };
            }
            vm
        };
        list.into_iter().enumerate().map(make).collect()
    })
}

fn hosts() -> impl Strategy<Value = Vec<FleetHost>> {
    let one = (1u32..4, 1u32..6, 1u32..3, 4u64..20, 0u64..12, 0u32..3);
    proptest::collection::vec(one, 1..3).prop_map(|list| {
        let make = |(index, (nodes, cores, threads, gib, huge, vfs)): (usize, (u32, u32, u32, u64, u64, u32))| {
            let mut host = host(&format!("host{index}"), nodes, cores, threads, gib, huge);
            let kind = DeviceKind::VirtualFunctions { of: "eth0".to_owned() };
            host.devices.push(DeviceSupply { kind, node: Some(nodes - 1), functions: Vec::new(), free: vfs });
            host
        };
        list.into_iter().enumerate().map(make).collect()
    })
}

fn fleet() -> impl Strategy<Value = Fleet> {
    (vms(), hosts()).prop_map(|(vms, hosts)| Fleet { vms, hosts, ..Fleet::default() })
}

/// What is not placed, the highest priority first.
fn unplaced(plan: &FleetPlan) -> Vec<u64> {
    plan.objective.levels.iter().filter(|level| level.of.is_some()).map(|level| level.value).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_plan_breaks_a_rule(fleet in fleet()) {
        for arrival in [Arrival::Batch, Arrival::Online] {
            let plan = plan(&fleet, &Options { arrival, ..steps(100) }).unwrap();
            prop_assert_eq!(check(&fleet, &plan), []);
        }
    }

    #[test]
    fn the_same_input_gives_the_same_plan(fleet in fleet()) {
        let (one, other) = (plan(&fleet, &steps(100)).unwrap(), plan(&fleet, &steps(100)).unwrap());
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&other).unwrap());
    }

    #[test]
    fn a_plan_in_force_plans_to_itself(fleet in fleet()) {
        let before = plan(&fleet, &steps(100)).unwrap();
        let mut running = fleet.clone();
        running.vms.retain(|vm| before.placements.iter().any(|placement| placement.vm == vm.name));
        for vm in &mut running.vms {
            vm.current = before.placements.iter().find(|placement| placement.vm == vm.name).cloned();
        }
        let after = plan(&running, &steps(100)).unwrap();
        prop_assert_eq!(check(&running, &after), []);
        prop_assert_eq!(after.placements.len(), before.placements.len());
        for (one, other) in before.placements.iter().zip(&after.placements) {
            prop_assert_eq!((&one.host, &one.cells, &one.devices), (&other.host, &other.cells, &other.devices));
        }
    }

    #[test]
    fn a_host_more_never_places_fewer_by_priority(fleet in fleet(), more in hosts()) {
        let before = plan(&fleet, &steps(1500)).unwrap();
        let mut larger = fleet.clone();
        larger.hosts.extend(more.into_iter().take(1).map(|host| FleetHost { name: "more".to_owned(), ..host }));
        let after = plan(&larger, &steps(1500)).unwrap();
        prop_assert!(unplaced(&after) <= unplaced(&before), "{:?} after {:?}", unplaced(&after), unplaced(&before));
    }
}
