//! Streams of VMs against the rules of others, with and without devices: how many are placed before the first refusal,
//! how many at a load, and how many hosts a whole fleet needs.

use nearmetal_fleet::{
    Arrival, DeviceDemand, DeviceKind, DeviceSelector, DeviceSupply, Fleet, FleetHost, GuestNuma, Locality, Options, Vm,
};
use nearmetal_units::Bytes;
use serde_json::{Value, json};

use super::peers::{self, Rule};
use super::{Dice, Failure, hosts, judged, median};

const HOSTS: u32 = 24;
const SEEDS: u64 = 11;
const NODE_GIB: u64 = 48;

pub(crate) fn run() -> Result<Value, Failure> {
    let mut rows = Vec::new();
    for devices in [false, true] {
        println!(
            "\n{HOSTS} hosts of 4 nodes x 16 PUs, {} devices; medians of {SEEDS}",
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
                    let (plan, _) = judged(fleet, &Options { seed: 1, steps: 2000, budget: None, arrival })?;
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

/// VMs until their vCPUs are so many percent of the PUs. With devices: 8 VFs on nodes 0 and 2 of each host, and every
/// third VM requires one on its node.
fn stream(load: u64, devices: bool, seed: u64) -> Fleet {
    let mut dice = Dice(seed * 131 + load);
    let mut hosts: Vec<FleetHost> =
        (0..HOSTS).map(|index| hosts::even(format!("host{index}"), 4, 16, 1, NODE_GIB, false)).collect();
    if devices {
        for host in &mut hosts {
            let supply = |node: u32| DeviceSupply {
                kind: DeviceKind::VirtualFunctions { of: format!("eth{node}") },
                node: Some(node),
                functions: Vec::new(),
                free: 4,
            };
            host.devices = vec![supply(0), supply(2)];
        }
    }
    let wanted = u64::from(HOSTS) * 64 * load / 100;
    let (mut vms, mut sum) = (Vec::new(), 0);
    while sum < wanted {
        let vcpus = dice.pick(&[1u32, 2, 2, 4, 4, 4, 6, 8, 8, 12, 16]);
        sum += u64::from(vcpus);
        let cells = if vcpus >= 8 && dice.below(3) == 0 { 2 } else { 1 };
        // What no empty node could hold says nothing about a rule.
        let gib = (u64::from(vcpus) * dice.pick(&[1u64, 2, 3, 4])).min(NODE_GIB * u64::from(cells));
        let mut vm = Vm::new(format!("vm{}", vms.len()), vcpus, Bytes::from_mib(gib << 10));
        vm.numa = GuestNuma::Cells(cells);
        if devices && dice.below(3) == 0 {
            let selector = DeviceSelector::VirtualFunction { of: None };
            vm.devices.push(DeviceDemand { selector, count: 1, locality: Locality::Required });
        }
        vms.push(vm);
    }
    Fleet { vms, hosts, ..Fleet::default() }
}
