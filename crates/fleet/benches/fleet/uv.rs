//! The machine of 2013: 32 nodes of 8 cores, and its larger sister of 512 cores.

use nearmetal_fleet::{Arrival, Fleet, GuestNuma, Options, Vm};
use nearmetal_units::Bytes;
use serde_json::{Value, json};

use super::{Failure, hosts, judged};

pub(crate) fn run() -> Result<Value, Failure> {
    let machine = |nodes: u32| vec![hosts::even("uv".to_owned(), nodes, 8, 1, 64, false)];
    let equal = |count: u32, vcpus: u32| -> Vec<Vm> {
        (0..count).map(|index| Vm::new(format!("vm{index}"), vcpus, Bytes::from_mib(u64::from(vcpus) << 12))).collect()
    };
    let mut wide = Vm::new("wide", 160, Bytes::from_mib(160 << 12));
    wide.numa = GuestNuma::Mirror;
    let cases = [
        ("32 VMs of 8 vCPUs on 32 nodes of 8 cores", equal(32, 8), machine(32)),
        ("512 VMs of 1 vCPU on 64 nodes of 8 cores", equal(512, 1), machine(64)),
        ("a VM of 160 vCPUs on 32 nodes of 8 cores", vec![wide], machine(32)),
    ];
    let mut rows = Vec::new();
    println!("{:44} {:>7} {:>14} {:>10}  verdict", "case", "placed", "nodes of a VM", "time");
    for (name, vms, hosts) in cases {
        let count = vms.len();
        let fleet = Fleet { vms, hosts, ..Fleet::default() };
        let options = Options { seed: 1, steps: 4000, budget: None, arrival: Arrival::Batch };
        let (plan, seconds) = judged(&fleet, &options)?;
        let most = plan.placements.iter().map(|placement| placement.cells.len()).max().unwrap_or(0);
        println!(
            "{name:44} {:>3}/{count:<3} {most:>14} {:>7.2} ms  {}",
            plan.placements.len(),
            seconds * 1e3,
            plan.headline
        );
        rows.push(json!({ "case": name, "vms": count, "placed": plan.placements.len(), "most_nodes_of_a_vm": most,
            "seconds": seconds, "headline": plan.headline }));
    }
    Ok(Value::Array(rows))
}
