//! Small random fleets that an exact search can go through. `crates/fleet-exact` reads this file too: a seed is the same
//! fleet in both.

use nearmetal_fleet::{
    CoreSupply, DeviceDemand, DeviceKind, DeviceSelector, DeviceSupply, Fleet, FleetHost, GroupRule, GuestNuma,
    Locality, NodeSupply, PoolSupply, Scope, SmtPolicy, Together, Vm,
};
use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize};

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        ((u128::from(mixed) * u128::from(limit)) >> 64) as u64
    }
}

/// A fleet about as large as its hosts: some fit, some do not.
pub(crate) fn random_fleet(seed: u64) -> Fleet {
    let (mut dice, mut classes) = (Dice(seed * 7919 + 13), Dice(seed * 104_729 + 7));
    let mut hosts = Vec::new();
    for index in 0..1 + dice.below(2) {
        let (count, threads) = (1 + dice.below(4) as u32, 1 + dice.below(2) as u32);
        let nodes: Vec<NodeSupply> = (0..count)
            .map(|node| {
                let cores = 2 + dice.below(5) as u32;
                let core = |core: u32| {
                    let first = node * 100 + core * threads;
                    CoreSupply { free: (first..first + threads).collect(), threads, l3: node * 100, kind: 0 }
                };
                NodeSupply {
                    index: node,
                    package: Some(node / 2),
                    cores: (0..cores).map(core).collect(),
                    memory: Bytes::from_mib((4 + dice.below(20)) << 10),
                    pools: vec![PoolSupply { size: PageSize::HUGE_1G, free: dice.below(16), may_grow: false }],
                    ..NodeSupply::default()
                }
            })
            .collect();
        let distance = |from: u32, to: u32| match (from == to, from / 2 == to / 2) {
            (true, _) => 10,
            (_, true) => 12,
            _ => 21,
        };
        let devices = (0..dice.below(3))
            .map(|device| DeviceSupply {
                kind: DeviceKind::VirtualFunctions { of: format!("eth{device}") },
                node: (dice.below(6) > 0).then(|| dice.below(u64::from(count)) as u32),
                functions: Vec::new(),
                free: 1 + dice.below(3) as u32,
            })
            .collect();
        hosts.push(FleetHost {
            name: format!("host{index}"),
            distances: (0..count).map(|from| (0..count).map(|to| distance(from, to)).collect()).collect(),
            nodes,
            devices,
            ..FleetHost::default()
        });
    }
    let vms = (0..3 + dice.below(10))
        .map(|index| {
            let two = dice.below(4) == 0;
            let (vcpus, memory) = (1 + dice.below(6) as u32, 1 + dice.below(7));
            // Two cells are equal halves.
            let (vcpus, memory) = if two { (vcpus.div_ceil(2) * 2, memory.div_ceil(2) * 2) } else { (vcpus, memory) };
            let mut vm = Vm::new(format!("vm{index}"), vcpus, Bytes::from_mib(memory << 10));
            vm.numa = GuestNuma::Cells(if two { 2 } else { 1 });
            vm.page_size = (dice.below(2) == 0).then_some(PageSize::HUGE_1G);
            vm.smt = if dice.below(4) == 0 { SmtPolicy::Isolate } else { SmtPolicy::Prefer };
            vm.priority = dice.below(2) as i32;
            if dice.below(3) == 0 {
                let locality = [Locality::Required, Locality::Preferred, Locality::Far][dice.below(3) as usize];
                vm.devices.push(DeviceDemand {
                    selector: DeviceSelector::VirtualFunction { of: None },
                    count: 1,
                    locality,
                });
            }
            vm.class =
                [WorkloadClass::General, WorkloadClass::General, WorkloadClass::Throughput, WorkloadClass::Latency]
                    [classes.below(4) as usize];
            if dice.below(8) == 0 {
                vm.groups.push(GroupRule { group: "apart".to_owned(), scope: Scope::Host, rule: Together::Apart });
            }
            vm
        })
        .collect();
    Fleet { vms, hosts, ..Fleet::default() }
}
