//! Streams of VMs against the rules of others, with and without devices: how many are placed before the first refusal,
//! how many at a load, and how many hosts a whole fleet needs.
//!
//! Written down before it was run: hosts of 4 nodes, 24 PUs and 72 GiB each. Sizes and memory a vCPU by the frequencies of
//! the production sequence C1, its VMs of 64 vCPUs left out. With devices: nodes 0 and 2 have 6 virtual functions each,
//! node 2 two GPUs besides; of the VMs 15 % require a virtual function on one of their nodes, 8 % a GPU, 3 % both. Who has
//! none can take the PUs devices need.

use nearmetal_fleet::{
    Arrival, DeviceDemand, DeviceKind, DeviceSelector, DeviceSupply, Fleet, FleetHost, GuestNuma, Locality, Options, Vm,
};
use nearmetal_units::Bytes;
use serde_json::{Value, json};

use super::peers::{self, Rule};
use super::{Dice, Failure, hosts, judged, median};

const HOSTS: u32 = 24;
const NODES: u32 = 4;
const NODE_PUS: u32 = 24;
const NODE_GIB: u64 = 72;
const SEEDS: u64 = 20;
const STEPS: u64 = 1000;
/// Upper limit of the percentile, vCPUs, cells.
const SIZES: [(usize, u32, u32); 5] = [(26, 2, 1), (52, 4, 1), (67, 8, 1), (76, 16, 1), (100, 32, 2)];
/// Percent of VMs with 2 GiB a vCPU; the others have 4.
const LEAN: usize = 67;
/// Percent of VMs that want a virtual function, of them also a GPU, and a GPU alone.
const WITH_VF: usize = 15;
const WITH_BOTH: usize = 3;
const WITH_GPU: usize = 5;
const GPU: u16 = 0x20b0;

pub(crate) fn run() -> Result<Value, Failure> {
    let mut rows = Vec::new();
    for devices in [false, true] {
        println!(
            "\n{HOSTS} hosts of {NODES} nodes x {NODE_PUS} PUs, {} devices; medians of {SEEDS}",
            if devices { "with" } else { "without" }
        );
        println!("{:20} {:>6} {:>16} {:>8} {:>8} {:>8}", "rule", "load", "before refusal", "placed", "vCPUs", "hosts");
        for load in [60, 70, 80, 90, 95] {
            let fleets: Vec<Fleet> = (0..SEEDS).map(|seed| stream(load, devices, seed)).collect();
            for rule in Rule::ALL {
                let mut figures: [Vec<f64>; 4] = Default::default();
                for fleet in &fleets {
                    let outcome = peers::place(fleet, rule);
                    let values = [
                        outcome.before_refusal as f64,
                        outcome.placed() as f64,
                        outcome.vcpus(fleet) as f64,
                        outcome.hosts() as f64,
                    ];
                    figures.iter_mut().zip(values).for_each(|(list, value)| list.push(value));
                }
                show(&mut rows, rule.name(), load, devices, figures);
            }
            for (name, arrival) in [("nearmetal online", Arrival::Online), ("nearmetal batch", Arrival::Batch)] {
                let mut figures: [Vec<f64>; 4] = Default::default();
                for fleet in &fleets {
                    let (plan, _) = judged(fleet, &Options { seed: 1, steps: STEPS, budget: None, arrival })?;
                    let refused: std::collections::BTreeSet<&str> =
                        plan.refusals.iter().map(|refusal| refusal.vm.as_str()).collect();
                    let before =
                        fleet.vms.iter().position(|vm| refused.contains(vm.name.as_str())).unwrap_or(fleet.vms.len());
                    let placed = fleet.vms.iter().filter(|vm| !refused.contains(vm.name.as_str()));
                    let vcpus: u64 = placed.map(|vm| u64::from(vm.vcpus)).sum();
                    let hosts: std::collections::BTreeSet<&str> =
                        plan.placements.iter().map(|placement| placement.host.as_str()).collect();
                    let values = [before as f64, plan.placements.len() as f64, vcpus as f64, hosts.len() as f64];
                    figures.iter_mut().zip(values).for_each(|(list, value)| list.push(value));
                }
                show(&mut rows, name, load, devices, figures);
            }
        }
    }
    Ok(Value::Array(rows))
}

fn show(rows: &mut Vec<Value>, rule: &str, load: u64, devices: bool, figures: [Vec<f64>; 4]) {
    let [before, placed, vcpus, hosts] = figures.map(median);
    println!("{rule:20} {load:>4} % {before:>16.0} {placed:>8.0} {vcpus:>8.0} {hosts:>8.0}");
    rows.push(json!({ "rule": rule, "load_percent": load, "devices": devices, "before_refusal": before,
        "placed": placed, "vcpus": vcpus, "hosts": hosts }));
}

/// VMs until their vCPUs are so many percent of the PUs.
fn stream(load: u64, devices: bool, seed: u64) -> Fleet {
    let mut dice = Dice(seed * 131 + load);
    let mut hosts: Vec<FleetHost> =
        (0..HOSTS).map(|index| hosts::even(format!("host{index}"), NODES, NODE_PUS, 1, NODE_GIB, false)).collect();
    if devices {
        for host in &mut hosts {
            let supply = |kind: DeviceKind, node: u32, free: u32| DeviceSupply {
                kind,
                node: Some(node),
                functions: Vec::new(),
                free,
            };
            let card = |node: u32| DeviceKind::VirtualFunctions { of: format!("eth{node}") };
            let gpu = DeviceKind::Function { vendor: 0x10de, device: GPU, class: 0x0302 };
            host.devices = vec![supply(card(0), 0, 6), supply(card(2), 2, 6), supply(gpu, 2, 2)];
        }
    }
    let wanted = u64::from(HOSTS * NODES * NODE_PUS) * load / 100;
    let (mut vms, mut sum) = (Vec::new(), 0);
    while sum < wanted {
        let die = dice.below(100);
        let (_, vcpus, cells) = SIZES.into_iter().find(|(until, ..)| die < *until).unwrap_or((100, 32, 2));
        let gib = u64::from(vcpus) * if dice.below(100) < LEAN { 2 } else { 4 };
        sum += u64::from(vcpus);
        let mut vm = Vm::new(format!("vm{}", vms.len()), vcpus, Bytes::from_mib(gib << 10));
        vm.numa = GuestNuma::Cells(cells);
        if devices {
            let die = dice.below(100);
            let demand = |selector| DeviceDemand { selector, count: 1, locality: Locality::Required };
            if die < WITH_VF {
                vm.devices.push(demand(DeviceSelector::VirtualFunction { of: None }));
            }
            if (WITH_VF - WITH_BOTH..WITH_VF + WITH_GPU).contains(&die) {
                vm.devices.push(demand(DeviceSelector::Id { vendor: 0x10de, device: GPU }));
            }
        }
        vms.push(vm);
    }
    Fleet { vms, hosts, ..Fleet::default() }
}
