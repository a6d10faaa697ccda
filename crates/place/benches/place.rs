//! How long planning takes, by machine and number of guests. Prints a table and writes target/bench/place.json.
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::path::Path;
use std::time::Instant;

use nearmetal_host::Host;
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_place::{DiskRequest, GuestRequest, Occupied, Policy, WorkloadClass, plan};
use nearmetal_units::Bytes;

/// Timed runs of each case; the median is shown.
const RUNS: usize = 11;

/// Name, nodes, cores of a node, guests, vCPUs of each.
const CASES: [(&str, u32, u32, u32, u32); 5] = [
    ("lab: 4 nodes x 4 PUs", 4, 2, 1, 2),
    ("server: 2 nodes x 64 PUs", 2, 32, 12, 8),
    ("server: 8 nodes x 32 PUs", 8, 16, 24, 8),
    ("32 nodes x 16 PUs", 32, 8, 32, 8),
    ("64 nodes x 16 PUs", 64, 8, 512, 1),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut records = Vec::new();
    println!("{:28} {:>7} {:>7} {:>8} {:>12}", "machine", "guests", "placed", "blocked", "median");
    for (name, nodes, cores, guests, vcpus) in CASES {
        let host = host(nodes, cores);
        let guests: Vec<GuestRequest> = (0..guests).map(|index| guest(index, nodes, vcpus)).collect();
        let mut seconds: Vec<f64> = (0..RUNS).map(|_| time(&host, &guests)).collect();
        seconds.sort_by(f64::total_cmp);
        let median = seconds[RUNS / 2];
        let result = plan(&host, &Occupied::default(), &guests, &Policy::default()).plan;
        let (placed, blocked) = (result.placements.len(), result.blocked.len());
        println!("{name:28} {:>7} {placed:>7} {blocked:>8} {:>9.3} ms", guests.len(), median * 1e3);
        records.push(serde_json::json!({
            "machine": name, "nodes": nodes, "pus": nodes * cores * 2, "guests": guests.len(), "vcpus": vcpus,
            "placed": placed, "blocked": blocked, "unit": "s", "samples": seconds, "median": median,
        }));
    }
    let record = serde_json::json!({ "schema": "nearmetal.bench.place/1", "runs": RUNS, "cases": records });
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    nearmetal_host::files::create_dir_all(&folder)?;
    nearmetal_host::files::write(&folder.join("place.json"), serde_json::to_string_pretty(&record)?)?;
    Ok(())
}

fn time(host: &Host, guests: &[GuestRequest]) -> f64 {
    let start = Instant::now();
    let planned = std::hint::black_box(plan(host, &Occupied::default(), guests, &Policy::default()));
    let seconds = start.elapsed().as_secs_f64();
    drop(planned);
    seconds
}

/// A machine of two PUs a core and a drive on each node.
fn host(nodes: u32, cores: u32) -> Host {
    let empty = Synthetic::new().packages(nodes).cores_per_node(cores).threads(2).numbering(Numbering::Split);
    let machine = empty.memory_per_node(Bytes::from_mib(64 << 10));
    (0..nodes).fold(machine, Synthetic::nvme).build()
}

/// Guests with drives on all nodes in turn.
fn guest(index: u32, nodes: u32, vcpus: u32) -> GuestRequest {
    let device = format!("nvme{}n1", index % nodes);
    GuestRequest {
        name: format!("guest{index}"),
        uuid: format!("00000000-0000-4000-8000-{index:012}"),
        vcpus,
        memory: Bytes::from_mib(2048),
        class: WorkloadClass::General,
        disks: vec![DiskRequest {
            target: "vda".to_owned(),
            source: Some(format!("/dev/{device}")),
            block_device: Some(device),
            is_block: true,
            is_virtio_blk: true,
            is_read_only: false,
        }],
        networks: Vec::new(),
        passthrough: Vec::new(),
        shows: Default::default(),
    }
}
