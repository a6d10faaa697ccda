//! Requests of a production cloud on its servers' free room, online and as a batch, beside the rules of others.
//!
//! Racks are not in the data: every 20 servers in the file's order are taken as one failure domain.

use std::path::Path;
use std::time::Instant;

use nearmetal_fleet::{Arrival, Fleet, FleetHost, FleetPlan, GroupRule, GuestNuma, Options, Scope, Together, Vm};
use nearmetal_units::Bytes;
use serde_json::{Value, json};

use super::ceiling::Ceiling;
use super::peers::{self, Rule};
use super::{Dice, Failure, hosts, judged, median};

const RACK: usize = 20;
const STEPS: u64 = 20_000;

pub(crate) fn run() -> Result<Value, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/placement");
    let seeds = super::setting("NEARMETAL_BENCH_SEEDS", 20);
    let servers = servers(&folder)?;
    let mut rows = Vec::new();
    for name in ["C1", "C2", "C3"] {
        let text = nearmetal_host::files::read_to_string(&folder.join(format!("VM_data_{name}.csv")))?;
        let vms = requests(&text)?;
        let asked: u64 = vms.iter().map(|vm| u64::from(vm.vcpus)).sum();
        println!("\n{name}: {} VMs, {asked} vCPUs", vms.len());
        let all = Fleet { vms: vms.clone(), hosts: servers.clone(), ..Fleet::default() };
        table(&mut rows, name, "all servers", std::slice::from_ref(&all))?;
        for percent in [90, 100, 110] {
            let fleets: Vec<Fleet> =
                (0..seeds).map(|seed| subset(&servers, &vms, asked * percent / 100, seed)).collect();
            table(&mut rows, name, &format!("{percent} %"), &fleets)?;
        }
    }
    Ok(Value::Array(rows))
}

/// What a rule or plan reached.
#[derive(Clone, Copy)]
struct Reached {
    vcpus: f64,
    vms: f64,
    servers: f64,
    seconds: f64,
}

fn table(rows: &mut Vec<Value>, sequence: &str, pool: &str, fleets: &[Fleet]) -> Result<(), Failure> {
    println!("{pool}, medians of {}:", fleets.len());
    println!("  {:20} {:>8} {:>8} {:>8} {:>9}", "", "vCPUs", "VMs", "servers", "time");
    let mut show = |name: &str, online: bool, all: Vec<Reached>| {
        let of = |pick: fn(&Reached) -> f64| median(all.iter().map(pick).collect());
        let (vcpus, vms, servers, seconds) = (of(|r| r.vcpus), of(|r| r.vms), of(|r| r.servers), of(|r| r.seconds));
        println!("  {name:20} {vcpus:>8.0} {vms:>8.0} {servers:>8.0} {:>6.0} ms", seconds * 1e3);
        rows.push(json!({ "sequence": sequence, "pool": pool, "rule": name, "online": online, "vcpus": vcpus,
            "vms": vms, "servers": servers, "seconds": seconds, "runs": all.len() }));
        vcpus
    };
    let mut best = [0f64; 2];
    let ceilings = fleets.iter().filter_map(|fleet| Some(Ceiling::of(fleet)?.vcpus())).collect();
    let ceiling = median(ceilings);
    let mut by_nova: Vec<(u64, Vec<bool>, usize)> = vec![Default::default(); fleets.len()];
    for rule in Rule::ALL {
        let run = |(fleet, better): (&Fleet, &mut (u64, Vec<bool>, usize))| {
            let start = Instant::now();
            let outcome = peers::place(fleet, rule);
            let seconds = start.elapsed().as_secs_f64();
            let vcpus = outcome.vcpus(fleet);
            if matches!(rule, Rule::NovaSpread | Rule::NovaPack) && vcpus > better.0 {
                *better = (vcpus, outcome.places.iter().map(Option::is_some).collect(), outcome.hosts());
            }
            Reached { vcpus: vcpus as f64, vms: outcome.placed() as f64, servers: outcome.hosts() as f64, seconds }
        };
        let vcpus = show(rule.name(), rule.is_online(), fleets.iter().zip(&mut by_nova).map(run).collect());
        if matches!(rule, Rule::NovaSpread | Rule::NovaPack) {
            best[0] = best[0].max(vcpus);
        }
        if matches!(rule, Rule::NovaSpread | Rule::NovaPack | Rule::NovaBiggestFirst) {
            best[1] = best[1].max(vcpus);
        }
    }
    for (at, (name, arrival)) in
        [("nearmetal online", Arrival::Online), ("nearmetal batch", Arrival::Batch)].into_iter().enumerate()
    {
        let mut all = Vec::new();
        let mut headline = String::new();
        for fleet in fleets {
            let (plan, seconds) = judged(fleet, &Options { seed: 1, steps: STEPS, budget: None, arrival })?;
            all.push(reached(fleet, &plan, seconds));
            headline = plan.headline;
        }
        let vcpus = show(name, arrival == Arrival::Online, all);
        let percent = |other: f64| (vcpus / other - 1.0) * 100.0;
        println!(
            "  {:20} {:+.1} % against Nova's better rule{}; {:+.1} % against the ceiling; last: {headline}",
            "",
            percent(best[0]),
            if at == 1 { format!(", {:+.1} % with biggest first", percent(best[1])) } else { String::new() },
            percent(ceiling)
        );
    }
    println!(
        "  {:20} {ceiling:>8.0}, no plan places more: {:+.1} % against Nova's better rule",
        "ceiling",
        (ceiling / best[0] - 1.0) * 100.0
    );
    let same = same_vms(fleets, &by_nova)?;
    let servers = match same.servers {
        Some((nova, own)) => format!("{own:.0} servers instead of {nova:.0}, {:+.1} %", (own / nova - 1.0) * 100.0),
        None => "no servers to compare".to_owned(),
    };
    println!(
        "  the VMs Nova's better rule placed, as a batch: all of them in {} of {} fleets: {servers}; {} refused at most",
        same.whole,
        fleets.len(),
        same.refused
    );
    rows.push(json!({ "sequence": sequence, "pool": pool, "ceiling_vcpus": ceiling, "same_vms_whole": same.whole,
        "same_vms_refused_at_most": same.refused, "same_vms_servers_by_nova": same.servers.map(|(nova, _)| nova),
        "same_vms_servers": same.servers.map(|(_, own)| own) }));
    Ok(())
}

/// What becomes of exactly the VMs Nova's better rule placed.
struct SameVms {
    /// Fleets in which the planner places all of them too.
    whole: usize,
    /// VMs it refuses at most.
    refused: usize,
    /// Medians of the servers of Nova and of the planner, over the fleets in which all are placed.
    servers: Option<(f64, f64)>,
}

fn same_vms(fleets: &[Fleet], by_nova: &[(u64, Vec<bool>, usize)]) -> Result<SameVms, Failure> {
    let (mut nova, mut own, mut refused) = (Vec::new(), Vec::new(), 0);
    for (fleet, (_, placed, servers)) in fleets.iter().zip(by_nova) {
        let vms = fleet.vms.iter().zip(placed).filter(|(_, placed)| **placed).map(|(vm, _)| vm.clone()).collect();
        let fleet = Fleet { vms, ..fleet.clone() };
        let options = Options { seed: 1, steps: STEPS, budget: None, arrival: Arrival::Batch };
        let (plan, seconds) = judged(&fleet, &options)?;
        refused = refused.max(plan.refusals.len());
        if plan.refusals.is_empty() {
            nova.push(*servers as f64);
            own.push(reached(&fleet, &plan, seconds).servers);
        }
    }
    let whole = nova.len();
    let servers = (whole > 0).then(|| (median(nova), median(own)));
    Ok(SameVms { whole, refused, servers })
}

fn reached(fleet: &Fleet, plan: &FleetPlan, seconds: f64) -> Reached {
    let all: u64 = fleet.vms.iter().map(|vm| u64::from(vm.vcpus)).sum();
    let missing: u64 = plan.objective.levels.iter().filter(|level| level.of.is_some()).map(|level| level.value).sum();
    let servers: std::collections::BTreeSet<&str> =
        plan.placements.iter().map(|placement| placement.host.as_str()).collect();
    Reached { vcpus: (all - missing) as f64, vms: plan.placements.len() as f64, servers: servers.len() as f64, seconds }
}

/// Servers by chance until their free vCPUs are enough; in the file's order.
fn subset(servers: &[FleetHost], vms: &[Vm], vcpus: u64, seed: u64) -> Fleet {
    let mut order: Vec<usize> = (0..servers.len()).collect();
    Dice(seed + 77).shuffle(&mut order);
    let mut taken = Vec::new();
    let mut sum = 0;
    for at in order {
        if sum >= vcpus {
            break;
        }
        sum += servers[at].nodes.iter().map(|node| node.cores.len() as u64).sum::<u64>();
        taken.push(at);
    }
    taken.sort_unstable();
    Fleet { vms: vms.to_vec(), hosts: taken.into_iter().map(|at| servers[at].clone()).collect(), ..Fleet::default() }
}

fn servers(folder: &Path) -> Result<Vec<FleetHost>, Failure> {
    let text = nearmetal_host::files::read_to_string(&folder.join("PM_res.csv"))?;
    let mut servers = Vec::new();
    for (index, line) in text.lines().skip(1).filter(|line| !line.trim().is_empty()).enumerate() {
        let fields: Vec<u64> = line.split(',').map(|field| field.trim().parse()).collect::<Result<_, _>>()?;
        let [pus, memory, more_pus, more_memory] = fields[..] else { return Err(format!("PM_res.csv: {line}").into()) };
        let nodes = vec![
            hosts::node(0, 0, pus as u32, 1, memory, false),
            hosts::node(1, pus as u32, more_pus as u32, 1, more_memory, false),
        ];
        let mut server = hosts::host(format!("server{index}"), nodes);
        server.failure_domain = Some(format!("rack{}", index / RACK));
        servers.push(server);
    }
    Ok(servers)
}

fn requests(text: &str) -> Result<Vec<Vm>, Failure> {
    let mut vms = Vec::new();
    for (index, line) in text.lines().skip(1).filter(|line| !line.trim().is_empty()).enumerate() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [vcpus, memory, cells, strategy, group, domain] = fields[..] else {
            return Err(format!("request {index}: {line}").into());
        };
        let memory: f64 = memory.parse()?;
        let mut vm = Vm::new(format!("vm{index}"), vcpus.parse()?, Bytes::from_mib((memory * 1024.0) as u64));
        vm.numa = GuestNuma::Cells(cells.parse()?);
        let rule = match strategy {
            "" => None,
            "affinity" => Some((Scope::Host, Together::Together)),
            "anti-affinity" => Some((Scope::Host, Together::Apart)),
            "fault_domain" => Some((Scope::FailureDomain, Together::ApartFromOtherLabels(domain.parse()?))),
            other => return Err(format!("request {index}: strategy `{other}` is not known").into()),
        };
        vm.groups.extend(rule.map(|(scope, rule)| GroupRule { group: format!("{strategy} {group}"), scope, rule }));
        vms.push(vm);
    }
    Ok(vms)
}
