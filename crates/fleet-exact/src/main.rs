//! The planner against HiGHS on small random fleets: up to 2 hosts, 8 nodes and 12 VMs. The model is written down here
//! once more, from the levels' definitions, with a column for every place a VM could have; levels are minimised one
//! after the other, each fixed before the next.
//!
//! Run it by `./dev bench fleet-exact`, or `cargo run --release` in this folder. A number is how many fleets (500), a
//! second one the first fleet's seed (0): `./dev bench fleet-exact 500 10000` are 500 others.

use highs::{Col, HighsModelStatus, RowProblem, Sense};
use nearmetal_fleet::{Arrival, Fleet, GuestNuma, LevelId, Locality, Options, SmtPolicy, Vm, check, plan};
use nearmetal_place::WorkloadClass;
use nearmetal_units::PageSize;

#[path = "../../fleet/tests/common/random.rs"]
mod random;

use random::random_fleet;

type Failure = Box<dyn std::error::Error>;

/// Steps of the planner for one fleet.
const STEPS: u64 = 2000;

fn main() -> Result<(), Failure> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(500), |text| text.parse())?;
    let first: u64 = std::env::args().nth(2).map_or(Ok(0), |text| text.parse())?;
    let (mut equal, mut proven, mut wrong_bounds, mut worst) = (0u64, 0u64, 0u64, 0f64);
    let (mut ours, mut theirs) = (0f64, 0f64);
    for seed in first..first + count {
        let fleet = random_fleet(seed);
        let start = std::time::Instant::now();
        let options = Options { seed: 1, steps: STEPS, budget: None, arrival: Arrival::Batch };
        let plan = plan(&fleet, &options)?;
        ours += start.elapsed().as_secs_f64();
        if let Some(breach) = check(&fleet, &plan).first() {
            return Err(format!("fleet {seed}: {breach}").into());
        }
        proven += u64::from(
            plan.objective.levels.iter().filter(|level| exact_level(level.level)).all(|level| level.is_proven()),
        );
        let levels: Vec<LevelId> =
            plan.objective.levels.iter().map(|level| level.level).filter(|level| exact_level(*level)).collect();
        let start = std::time::Instant::now();
        let exact = solve(&fleet, &levels).map_err(|error| format!("fleet {seed}: {error}"))?;
        theirs += start.elapsed().as_secs_f64();
        let mut same = true;
        for (level, best) in levels.iter().zip(&exact) {
            let entry = plan.objective.levels.iter().find(|entry| entry.level == *level).ok_or("a level is missing")?;
            if entry.bound > *best {
                wrong_bounds += 1;
                eprintln!("fleet {seed}: {level:?}: bound {} above the optimum {best}", entry.bound);
            }
            if entry.value != *best {
                let asked: u64 = fleet.vms.iter().map(|vm| u64::from(vm.vcpus)).sum();
                let base = if entry.of.is_some() { asked - best } else { *best };
                let gap = (entry.value as f64 - *best as f64) / (base.max(1) as f64) * 100.0;
                worst = worst.max(gap);
                eprintln!("fleet {seed}: {level:?}: {} against {best}, {gap:.1} %", entry.value);
                same = false;
                break;
            }
        }
        equal += u64::from(same);
    }
    println!("compared up to the nodes in use; what is stranded and the PUs inside a node come after");
    println!(
        "{count} fleets: equal at every level {equal} ({:.1} %), first unequal level at most {worst:.1} % worse",
        equal as f64 * 100.0 / count as f64
    );
    println!("bounds above the optimum: {wrong_bounds}; proven optimal by the planner itself: {proven}");
    println!("mean time: planner {:.2} ms, HiGHS {:.2} ms", ours / count as f64 * 1e3, theirs / count as f64 * 1e3);
    let record = serde_json::json!({ "schema": "nearmetal.bench.fleet-exact/1", "fleets": count, "first_seed": first, "equal": equal,
        "worst_gap_percent": worst, "wrong_bounds": wrong_bounds, "proven": proven,
        "planner_seconds": ours / count as f64, "highs_seconds": theirs / count as f64 });
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    nearmetal_host::files::create_dir_all(&folder)?;
    nearmetal_host::files::write(&folder.join("fleet-exact.json"), serde_json::to_string_pretty(&record)?)?;
    Ok(())
}

/// Levels the model has. Those after them are reached by choices after the nodes': PUs inside a node, and moves that
/// cost nothing before.
fn exact_level(level: LevelId) -> bool {
    !matches!(level, LevelId::Stranded | LevelId::SharedCores | LevelId::ExtraL3)
}

/// One place a VM could have.
struct Option_ {
    vm: usize,
    host: usize,
    nodes: Vec<usize>,
    slot: Option<usize>,
    remote: f64,
    devices: f64,
}

fn solve(fleet: &Fleet, levels: &[LevelId]) -> Result<Vec<u64>, Failure> {
    let options = options(fleet);
    let mut fixed: Vec<(LevelId, u64)> = Vec::new();
    for level in levels {
        let value = minimise(fleet, &options, *level, &fixed)?;
        fixed.push((*level, value));
    }
    Ok(fixed.into_iter().map(|(_, value)| value).collect())
}

fn minimise(fleet: &Fleet, options: &[Option_], level: LevelId, fixed: &[(LevelId, u64)]) -> Result<u64, Failure> {
    let mut problem = RowProblem::default();
    let nodes: Vec<(usize, usize)> = fleet
        .hosts
        .iter()
        .enumerate()
        .flat_map(|(host, there)| (0..there.nodes.len()).map(move |node| (host, node)))
        .collect();
    let cost = |option: &Option_, of: LevelId| match of {
        LevelId::Unplaced { priority } if fleet.vms[option.vm].priority == priority => {
            -f64::from(fleet.vms[option.vm].vcpus)
        }
        LevelId::RemoteMemory => option.remote,
        LevelId::RemoteDevices => option.devices,
        _ => 0.0,
    };
    let is = |wanted: LevelId| if level == wanted { 1.0 } else { 0.0 };
    let x: Vec<Col> = options.iter().map(|option| problem.add_integer_column(cost(option, level), 0..=1)).collect();
    let y: Vec<Col> = fleet.hosts.iter().map(|_| problem.add_integer_column(is(LevelId::Hosts), 0..=1)).collect();
    let z: Vec<Col> = nodes.iter().map(|_| problem.add_integer_column(is(LevelId::BrokenNodes), 0..=1)).collect();
    // VMs of bandwidth: nodes that have one, and by host how many nodes could relieve others.
    let lone: Vec<Col> = nodes.iter().map(|_| problem.add_integer_column(0.0, 0..=1)).collect();
    let crowd: Vec<Col> =
        fleet.hosts.iter().map(|_| problem.add_integer_column(is(LevelId::SharedBandwidth), 0..)).collect();
    let fewer: Vec<Col> = fleet.hosts.iter().map(|_| problem.add_integer_column(0.0, 0..=1)).collect();
    let of = |pick: &dyn Fn(&Option_) -> f64| -> Vec<(Col, f64)> {
        let all = options.iter().zip(&x).map(|(option, col)| (*col, pick(option)));
        all.filter(|(_, factor)| *factor != 0.0).collect()
    };
    for vm in 0..fleet.vms.len() {
        problem.add_row(..=1.0, of(&|option| f64::from(u8::from(option.vm == vm))));
    }
    for (at, (host, node)) in nodes.iter().enumerate() {
        let supply = &fleet.hosts[*host].nodes[*node];
        let on = |option: &Option_| option.host == *host && option.nodes.contains(node);
        let threads = f64::from(supply.cores[0].threads);
        let pus = |option: &Option_| {
            let vm = &fleet.vms[option.vm];
            let vcpus = f64::from(vm.vcpus) / option.nodes.len() as f64;
            if on(option) { vcpus * if vm.smt == SmtPolicy::Isolate { threads } else { 1.0 } } else { 0.0 }
        };
        problem.add_row(..=threads * supply.cores.len() as f64, of(&pus));
        for size in [None, Some(PageSize::HUGE_1G)] {
            let memory = |option: &Option_| {
                let vm = &fleet.vms[option.vm];
                if on(option) && vm.page_size == size { gib(vm) / option.nodes.len() as f64 } else { 0.0 }
            };
            let there = match size {
                None => (supply.memory.get() >> 30) as f64,
                Some(_) => supply.pools[0].free as f64,
            };
            problem.add_row(..=there, of(&memory));
        }
        // A place on the node opens it.
        for (option, col) in options.iter().zip(&x).filter(|(option, _)| on(option)) {
            problem.add_row(..=0.0, [(*col, 1.0), (z[at], -1.0)]);
            problem.add_row(..=0.0, [(*col, 1.0), (y[option.host], -1.0)]);
        }
    }
    for (host, there) in fleet.hosts.iter().enumerate() {
        for (slot, supply) in there.devices.iter().enumerate() {
            let on = |option: &Option_| f64::from(u8::from(option.host == host && option.slot == Some(slot)));
            problem.add_row(..=f64::from(supply.free), of(&on));
        }
        let apart =
            |option: &Option_| f64::from(u8::from(option.host == host && !fleet.vms[option.vm].groups.is_empty()));
        problem.add_row(..=1.0, of(&apart));
    }
    // The smaller of VMs beyond one a node and nodes with none is min(cells, nodes) less the nodes that have one.
    for (host, there) in fleet.hosts.iter().enumerate() {
        let heavy =
            |option: &Option_| matches!(fleet.vms[option.vm].class, WorkloadClass::Throughput | WorkloadClass::Latency);
        let own: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].0 == host).collect();
        for at in &own {
            let on = |option: &Option_| {
                f64::from(u8::from(heavy(option) && option.host == host && option.nodes.contains(&nodes[*at].1)))
            };
            let mut row: Vec<(Col, f64)> = of(&on).into_iter().map(|(col, factor)| (col, -factor)).collect();
            row.push((lone[*at], 1.0));
            problem.add_row(..=0.0, row);
        }
        let occupied = || own.iter().map(|at| (lone[*at], 1.0));
        let cells =
            |option: &Option_| if heavy(option) && option.host == host { option.nodes.len() as f64 } else { 0.0 };
        let all: f64 = fleet.vms.iter().map(|vm| if vm.numa == GuestNuma::Cells(2) { 2.0 } else { 1.0 }).sum();
        let big = all + there.nodes.len() as f64;
        let mut by_cells: Vec<(Col, f64)> = of(&cells).into_iter().map(|(col, factor)| (col, -factor)).collect();
        by_cells.extend(occupied().chain([(crowd[host], 1.0), (fewer[host], big)]));
        problem.add_row(0.0.., by_cells);
        let by_nodes: Vec<(Col, f64)> = occupied().chain([(crowd[host], 1.0), (fewer[host], -big)]).collect();
        problem.add_row(there.nodes.len() as f64 - big.., by_nodes);
    }
    for (level, value) in fixed {
        let (value, mut row) = match level {
            LevelId::Unplaced { priority } => {
                let asked = fleet.vms.iter().filter(|vm| vm.priority == *priority).map(|vm| f64::from(vm.vcpus));
                (*value as f64 - asked.sum::<f64>(), of(&|option| cost(option, *level)))
            }
            LevelId::Hosts => (*value as f64, y.iter().map(|col| (*col, 1.0)).collect()),
            LevelId::SharedBandwidth => (*value as f64, crowd.iter().map(|col| (*col, 1.0)).collect()),
            LevelId::BrokenNodes => (*value as f64, z.iter().map(|col| (*col, 1.0)).collect()),
            _ => (*value as f64, of(&|option| cost(option, *level))),
        };
        if row.is_empty() {
            row.push((x.first().copied().unwrap_or(y[0]), 0.0));
        }
        problem.add_row(..=value + 1e-6, row);
    }
    let mut model = problem.optimise(Sense::Minimise);
    model.set_option("output_flag", false);
    model.set_option("mip_rel_gap", 0.0);
    model.set_option("mip_abs_gap", 0.5);
    model.set_option("threads", 1);
    let solved = model.solve();
    if solved.status() != HighsModelStatus::Optimal {
        return Err(format!("HiGHS: {:?} at {level:?}", solved.status()).into());
    }
    let columns = solved.get_solution().columns().to_vec();
    let sum: f64 = match level {
        LevelId::Hosts => columns[x.len()..x.len() + y.len()].iter().map(|value| value.round()).sum(),
        LevelId::BrokenNodes => columns[x.len() + y.len()..][..z.len()].iter().map(|value| value.round()).sum(),
        LevelId::SharedBandwidth => {
            let first = x.len() + y.len() + z.len() + lone.len();
            columns[first..first + crowd.len()].iter().map(|value| value.round()).sum()
        }
        _ => options.iter().zip(&columns).map(|(option, value)| cost(option, level) * value.round()).sum(),
    };
    let base: f64 = match level {
        LevelId::Unplaced { priority } => {
            fleet.vms.iter().filter(|vm| vm.priority == priority).map(|vm| f64::from(vm.vcpus)).sum()
        }
        _ => 0.0,
    };
    Ok((base + sum).round() as u64)
}

fn gib(vm: &Vm) -> f64 {
    (vm.memory.get() >> 30) as f64
}

/// Every host, node or pair of nodes, and device slot of every VM.
fn options(fleet: &Fleet) -> Vec<Option_> {
    let mut options = Vec::new();
    for (index, vm) in fleet.vms.iter().enumerate() {
        for (host, there) in fleet.hosts.iter().enumerate() {
            let count = there.nodes.len();
            let sets: Vec<Vec<usize>> = if vm.numa == GuestNuma::Cells(2) {
                (0..count).flat_map(|one| (one + 1..count).map(move |other| vec![one, other])).collect()
            } else {
                (0..count).map(|node| vec![node]).collect()
            };
            for nodes in sets {
                let remote = if let [one, other] = nodes[..] {
                    gib(vm) / 2.0 * 1024.0 * f64::from(there.distances[one][other] - 10)
                } else {
                    0.0
                };
                let mut place = |slot, devices| {
                    options.push(Option_ { vm: index, host, nodes: nodes.clone(), slot, remote, devices })
                };
                let Some(demand) = vm.devices.first() else {
                    place(None, 0.0);
                    continue;
                };
                for (slot, supply) in there.devices.iter().enumerate() {
                    let at = supply.node.map(|node| node as usize);
                    let package = |node: usize| there.nodes[node].package;
                    let away = match at {
                        Some(node) if nodes.contains(&node) => 0.0,
                        Some(node) if nodes.iter().any(|own| package(*own) == package(node)) => 1.0,
                        _ => 2.0,
                    };
                    match demand.locality {
                        Locality::Required if away > 0.0 => {}
                        Locality::Far => place(Some(slot), 0.0),
                        _ => place(Some(slot), away),
                    }
                }
            }
        }
    }
    options
}
