//! Time and memory against the size of the fleet.

use nearmetal_fleet::{Arrival, Fleet, FleetPlan, GuestNuma, Options, Vm};
use nearmetal_units::Bytes;
use serde_json::{Value, json};

use super::{Dice, Failure, hosts, judged};

pub(crate) fn run() -> Result<Value, Failure> {
    let mut rows = Vec::new();
    println!("{:34} {:>14} {:>10} {:>10} {:>12}  verdict", "fleet", "placed", "time", "memory", "vCPU gap");
    let one = Fleet {
        vms: requests(512, 64 * 16, 3),
        hosts: vec![hosts::even("host".to_owned(), 64, 8, 2, 64, false)],
        ..Fleet::default()
    };
    row(&mut rows, "1 host of 64 nodes, 512 VMs", &one)?;
    for count in [10, 30, 100, 300, 1000] {
        let hosts: Vec<_> = (0..count).map(|index| hosts::even(format!("host{index}"), 4, 8, 2, 64, false)).collect();
        let fleet = Fleet { vms: requests(count * 10, count * 64, 5), hosts, ..Fleet::default() };
        row(&mut rows, &format!("{count} hosts of 4 nodes, {} VMs", count * 10), &fleet)?;
    }
    Ok(Value::Array(rows))
}

fn row(rows: &mut Vec<Value>, name: &str, fleet: &Fleet) -> Result<(), Failure> {
    let (plan, seconds) = judged(fleet, &Options { seed: 1, arrival: Arrival::Batch, ..Options::default() })?;
    let gap = worst_gap(&plan);
    let memory = peak_mib();
    let (placed, all) = (plan.placements.len(), fleet.vms.len());
    println!(
        "{name:34} {placed:>7}/{all:<6} {:>7.0} ms {memory:>6.0} MiB {gap:>10.2} %  {}",
        seconds * 1e3,
        plan.headline
    );
    let levels: Vec<Value> = plan.objective.levels.iter().map(|level| json!(level)).collect();
    rows.push(json!({ "fleet": name, "vms": all, "placed": placed, "seconds": seconds, "peak_mib": memory,
        "vcpu_gap_percent": gap, "headline": plan.headline, "levels": levels, "steps": plan.search.done,
        "stopped_early": plan.search.stopped_early }));
    Ok(())
}

/// How far placed vCPUs may be from the most there can be.
fn worst_gap(plan: &FleetPlan) -> f64 {
    let placed = plan.objective.levels.iter().filter(|level| level.of.is_some());
    placed.filter_map(|level| level.gap_percent()).fold(0.0, f64::max)
}

/// The most memory this process ever had, in MiB, by /proc; NaN where there is none.
fn peak_mib() -> f64 {
    let fs = nearmetal_host::HostFs::live();
    let status = fs.read("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok())
        .map_or(f64::NAN, |kib| kib / 1024.0)
}

/// So many VMs of about 95 % of so many PUs together: sizes as in production, one in ten with two cells.
fn requests(count: u32, pus: u32, seed: u64) -> Vec<Vm> {
    let mut dice = Dice(seed);
    let sizes = [1u32, 1, 2, 2, 2, 4, 4, 4, 8, 8, 16];
    let mut vms: Vec<Vm> = Vec::new();
    let mut left = u64::from(pus) * 95 / 100;
    for index in 0..count {
        let share = (left / u64::from(count - index).max(1)).max(1);
        let size = u64::from(dice.pick(&sizes)) * share / 4;
        let size = (size.clamp(1, 16).next_power_of_two() as u32).min(16);
        left = left.saturating_sub(u64::from(size));
        let memory = u64::from(size) * dice.pick(&[1u64, 2, 2, 4]);
        let mut vm = Vm::new(format!("vm{index}"), size, Bytes::from_mib(memory << 10));
        if size >= 8 && dice.below(3) == 0 {
            vm.numa = GuestNuma::Cells(2);
        }
        vms.push(vm);
    }
    vms
}
