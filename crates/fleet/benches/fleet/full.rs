//! Batches that fit exactly because they were cut from full nodes: whatever is not placed is the planner's fault.
//!
//! Each node's PUs are cut into cells until it is 85, 95 or 100 % full; a cell's memory in 1 GiB pages is 1 to 3 per
//! vCPU, cut where the node has no more. Then two cells of different nodes are joined to one VM until 30 % of the VMs have
//! two, and the list is shuffled.

use nearmetal_fleet::{Arrival, Fleet, GuestNuma, Options, Vm};
use nearmetal_units::{Bytes, PageSize};
use serde_json::{Value, json};

use super::peers::{self, Rule};
use super::{Dice, Failure, hosts, judged, median};

/// Unless NEARMETAL_BENCH_BATCHES says otherwise.
const BATCHES: u64 = 150;
/// Nodes, PUs of a node, and GiB of a node for each of its PUs.
const SHAPES: [(u32, u32); 5] = [(2, 32), (8, 16), (8, 48), (24, 16), (64, 4)];
const GIB_PER_PU: u64 = 2;
const STEPS: u64 = 20_000;

pub(crate) fn run() -> Result<Value, Failure> {
    let mut rows = Vec::new();
    let batches = super::setting("NEARMETAL_BENCH_BATCHES", BATCHES);
    println!("{batches} batches each; whole: all VMs placed");
    println!(
        "{:10} {:>5} {:>5} {:>8} {:>10} {:>12} {:>10} {:>14}",
        "host", "full", "VMs", "whole", "median", "Nova spread", "Nova pack", "biggest first"
    );
    for (nodes, pus) in SHAPES {
        for fill in [85, 95, 100] {
            let (mut whole, mut by_rule, mut seconds, mut vms) = (0u64, [0u64; 3], Vec::new(), 0);
            for batch in 0..batches {
                let fleet = cut(nodes, pus, fill, batch);
                vms += fleet.vms.len();
                let options = Options { seed: 1, steps: STEPS, budget: None, arrival: Arrival::Batch };
                let (plan, took) = judged(&fleet, &options)?;
                seconds.push(took);
                whole += u64::from(plan.refusals.is_empty());
                for (count, rule) in by_rule.iter_mut().zip([Rule::NovaSpread, Rule::NovaPack, Rule::NovaBiggestFirst])
                {
                    *count += u64::from(peers::place(&fleet, rule).placed() == fleet.vms.len());
                }
            }
            let percent = |count: u64| count as f64 * 100.0 / batches as f64;
            let middle = median(seconds);
            let mean = vms as f64 / batches as f64;
            println!(
                "{nodes:>2} x {pus:<5} {fill:>3} % {mean:>5.0} {:>6.1} % {:>7.2} ms {:>10.1} % {:>8.1} % {:>12.1} %",
                percent(whole),
                middle * 1e3,
                percent(by_rule[0]),
                percent(by_rule[1]),
                percent(by_rule[2])
            );
            rows.push(json!({
                "nodes": nodes, "pus": pus, "fill_percent": fill, "batches": batches, "mean_vms": mean,
                "whole": whole, "median_seconds": middle,
                "nova_spread": by_rule[0], "nova_pack": by_rule[1], "nova_biggest_first": by_rule[2],
            }));
        }
    }
    Ok(Value::Array(rows))
}

/// A batch that fits.
pub(crate) fn cut(nodes: u32, pus: u32, fill: u64, seed: u64) -> Fleet {
    let mut dice = Dice(seed * 1_000_003 + u64::from(nodes) * 1009 + u64::from(pus) * 31 + fill);
    let gib = u64::from(pus) * GIB_PER_PU;
    let mut cells: Vec<Vec<(u32, u64)>> = Vec::new();
    for _ in 0..nodes {
        let (mut left, mut memory) = ((u64::from(pus) * fill / 100) as u32, gib * fill / 100);
        let mut own = Vec::new();
        while left > 0 {
            let vcpus = dice.pick(&[1u32, 2, 2, 4, 4, 8, 8, 12, 16]).min(left);
            left -= vcpus;
            // Each cell still to come needs a page.
            let most = memory.saturating_sub(u64::from(left)).max(1);
            let pages = (u64::from(vcpus) * (1 + dice.below(3) as u64)).min(most);
            memory -= pages;
            own.push((vcpus, pages));
        }
        cells.push(own);
    }
    // Equal halves on two nodes become one VM of two cells: the second takes the first one's size.
    let mut vms: Vec<(u32, Vec<(u32, u64)>)> = Vec::new();
    let total: usize = cells.iter().map(Vec::len).sum();
    let pairs = total * 3 / 13;
    let mut joined = 0;
    for _ in 0..total * 4 {
        if joined == pairs || nodes < 2 {
            break;
        }
        let (one, other) = (dice.below(cells.len()), dice.below(cells.len()));
        if one == other || cells[one].is_empty() {
            continue;
        }
        let at = dice.below(cells[one].len());
        let (vcpus, pages) = cells[one][at];
        let twin = cells[other].iter().position(|(v, _)| *v == vcpus);
        if let Some(twin) = twin {
            // The smaller memory of the two: what fitted still fits.
            let least = pages.min(cells[other][twin].1);
            cells[one].swap_remove(at);
            cells[other].swap_remove(twin);
            vms.push((2, vec![(vcpus, least); 2]));
            joined += 1;
        }
    }
    for own in cells {
        vms.extend(own.into_iter().map(|cell| (1, vec![cell])));
    }
    dice.shuffle(&mut vms);
    let vm = |(index, (count, cells)): (usize, (u32, Vec<(u32, u64)>))| {
        let (vcpus, pages) = cells.iter().fold((0, 0), |(v, p), cell| (v + cell.0, p + cell.1));
        let mut vm = Vm::new(format!("vm{index}"), vcpus, Bytes::from_mib(pages << 10));
        vm.page_size = Some(PageSize::HUGE_1G);
        vm.numa = GuestNuma::Cells(count);
        vm
    };
    Fleet {
        vms: vms.into_iter().enumerate().map(vm).collect(),
        hosts: vec![hosts::even("host".to_owned(), nodes, pus, 1, gib, true)],
        ..Fleet::default()
    }
}
