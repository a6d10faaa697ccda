//! What no plan can beat, level by level. Every bound here relaxes the problem: hosts are melted into sums, integers into
//! fractions, and what VMs do to each other is left out. So a bound may be low, and is never wrong.

use crate::dense::{Cells, EXTRA, HOSTS, NODES, PRIORITIES, Problem, REMOTE, REMOTE_DEVICES, Shape, Value, ZERO};
use crate::model::{Locality, Scope, SmtPolicy, SpreadHosts, Together};

/// Prices are multiples of this part of a vCPU.
const PRICE: i128 = 1 << 16;
/// Rounds of the search for the best prices; any prices give a bound.
const ROUNDS: usize = 6;

/// Lower bounds a search may stop at, however it got there: unlike [`bound`], what is said of nodes does not lean on the
/// hosts reached so far, which the search may still change.
pub(crate) fn target(problem: &Problem, reached: &Value) -> Value {
    let mut best = *reached;
    best[HOSTS] = hosts(problem, reached[..EXTRA].iter().sum());
    bound(problem, &best)
}

/// Lower bounds of all levels, each for plans that reach the same as `reached` at the levels before.
pub(crate) fn bound(problem: &Problem, reached: &Value) -> Value {
    let mut bound = ZERO;
    let fits: Vec<bool> = problem.shapes.iter().map(|shape| could_fit(problem, shape)).collect();
    let mut missed = 0u64;
    for priority in 0..problem.priorities.len() {
        let least = unplaced(problem, &fits, priority);
        bound[priority] = least.saturating_sub(missed);
        missed += reached[priority];
    }
    if missed == 0 {
        let mut counts = vec![0u64; problem.shapes.len()];
        // What a VM that stays costs is known to nobody here; its PUs are not in the nodes' figures.
        problem.vms.iter().filter(|vm| !vm.fixed).for_each(|vm| counts[vm.shape] += 1);
        for (shape, count) in problem.shapes.iter().zip(counts) {
            bound[EXTRA] += count * extra(problem, shape);
            bound[REMOTE] = bound[REMOTE].saturating_add(count.saturating_mul(remote(problem, shape)));
            bound[REMOTE_DEVICES] += count * devices(problem, shape);
        }
    }
    bound[HOSTS] = hosts(problem, missed);
    // A host in use has a node in use.
    let open = match problem.spread {
        SpreadHosts::Fewest => reached[HOSTS],
        SpreadHosts::Most => (problem.hosts.len() as u64).saturating_sub(reached[HOSTS]),
    };
    bound[NODES] = nodes(problem, missed).max(open);
    bound
}

fn host_nodes(problem: &Problem, host: usize) -> std::ops::Range<usize> {
    let dense = &problem.hosts[host];
    dense.first..dense.first + dense.count
}

/// All pages of a class a node could ever give.
fn pages(problem: &Problem, node: usize, class: usize) -> u64 {
    problem.nodes[node].free_pages(&crate::dense::NodeUse::default(), class, &problem.mib)
}

/// vCPUs of the shape's kind a node could ever carry.
fn room(problem: &Problem, node: usize, shape: &Shape) -> u64 {
    let cap = &problem.nodes[node];
    if !shape.threads_suit(cap.threads) {
        return 0;
    }
    u64::from(cap.room(&crate::dense::NodeUse::default(), shape.kind))
}

fn allowed(shape: &Shape, host: usize) -> bool {
    shape.hosts.is_empty() || shape.hosts[host]
}

/// Whether some host, empty, could take it, as far as sums tell.
fn could_fit(problem: &Problem, shape: &Shape) -> bool {
    (0..problem.hosts.len()).filter(|host| allowed(shape, *host)).any(|host| {
        let nodes = host_nodes(problem, host);
        let devices = shape.demands.iter().all(|demand| {
            let slots = problem.slots[problem.hosts[host].slots.clone()].iter();
            let there = slots.filter(|slot| slot.suits(demand.selector)).map(|slot| u64::from(slot.free));
            there.sum::<u64>() >= u64::from(demand.count)
        });
        devices
            && match shape.cells {
                Cells::Free => {
                    nodes.clone().map(|node| room(problem, node, shape)).sum::<u64>() >= u64::from(shape.vcpus)
                        && nodes.map(|node| pages(problem, node, shape.class)).sum::<u64>() >= shape.pages
                }
                Cells::Fixed(count) => {
                    let cells = || (0..count).map(|cell| shape.cell(cell, count));
                    let least_vcpus = cells().map(|(vcpus, _)| u64::from(vcpus)).min().unwrap_or(0);
                    let least_pages = cells().map(|(_, pages)| pages).min().unwrap_or(0);
                    let fit = nodes.filter(|node| {
                        room(problem, *node, shape) >= least_vcpus && pages(problem, *node, shape.class) >= least_pages
                    });
                    fit.count() >= count as usize
                }
            }
    })
}

/// vCPUs of this and higher priorities that cannot be placed: everything melted into sums, and PUs and pages priced.
fn unplaced(problem: &Problem, fits: &[bool], priority: usize) -> u64 {
    let mut counts = vec![0u64; problem.shapes.len()];
    for vm in problem.vms.iter().filter(|vm| vm.priority <= priority && !vm.fixed) {
        counts[vm.shape] += 1;
    }
    let all: u64 = counts.iter().zip(&problem.shapes).map(|(count, shape)| count * u64::from(shape.vcpus)).sum();
    let there = supply(problem);
    let counted = || problem.shapes.iter().zip(&counts).zip(fits).filter(|((_, count), fits)| **count > 0 && **fits);
    // The count scales what the item is worth; needs are of one.
    let items: Vec<(i128, Vec<i128>)> =
        counted().map(|((shape, count), _)| (i128::from(*count), demand(problem, shape))).collect();
    let worth: Vec<i128> = counted().map(|((shape, _), _)| i128::from(shape.vcpus) * PRICE).collect();
    let value = |prices: &[i128]| -> i128 {
        let base: i128 = prices.iter().zip(&there).map(|(price, there)| price * there).sum();
        let kept = items.iter().zip(&worth).map(|((count, needs), worth)| {
            let cost: i128 = prices.iter().zip(needs).map(|(price, need)| price * need).sum();
            (worth - cost).max(0) * count
        });
        base + kept.sum::<i128>()
    };
    // Convex in each price: thirds find its best; a few rounds over all of them.
    let mut prices = vec![0i128; there.len()];
    let mut best = value(&prices);
    for _ in 0..ROUNDS {
        let start = best;
        for at in 0..prices.len() {
            let (mut low, mut high) = (0i128, 8 * PRICE);
            while high - low > 2 {
                let (one, two) = (low + (high - low) / 3, high - (high - low) / 3);
                prices[at] = one;
                let left = value(&prices);
                prices[at] = two;
                if left <= value(&prices) { high = two } else { low = one }
            }
            prices[at] = low;
            for price in low..=high {
                let old = prices[at];
                prices[at] = price;
                if value(&prices) > value(&with(&prices, at, old)) {
                    prices[at] = old;
                }
            }
            best = best.min(value(&prices));
        }
        if best == start {
            break;
        }
    }
    let most = u64::try_from(best / PRICE).unwrap_or(u64::MAX);
    all.saturating_sub(most).max(too_large_groups(problem, priority))
}

/// vCPUs of groups that must be on one host, beyond what the largest host has PUs for.
fn too_large_groups(problem: &Problem, priority: usize) -> u64 {
    let ratios = ratios(problem);
    let of_host = |host: usize| -> u64 {
        let classes = problem.sizes.len();
        let of_node = |node: usize| {
            let cap = &problem.nodes[node];
            let all: u64 = (0..classes).map(|class| cap.pages[class] * problem.mib[class]).sum();
            u64::try_from(usable(problem.all_pus[node], all, ratios).0).unwrap_or(0)
        };
        host_nodes(problem, host).map(of_node).sum()
    };
    let largest = (0..problem.hosts.len()).map(of_host).max().unwrap_or(0);
    let mut beyond = 0;
    for (index, members) in problem.members.iter().enumerate() {
        let counted = members.iter().map(|vm| &problem.vms[*vm as usize]).filter(|vm| {
            // A VM of several groups would be counted several times.
            let whole = |group: &crate::dense::DenseGroup| {
                group.group == index && group.rule == Together::Together && group.scope == Scope::Host
            };
            let shape = &problem.shapes[vm.shape];
            vm.priority <= priority && vm.groups.len() == 1 && vm.groups.iter().any(whole) && shape.is_dedicated()
        });
        let vcpus: u64 = counted.map(|vm| u64::from(problem.shapes[vm.shape].vcpus)).sum();
        beyond += vcpus.saturating_sub(largest);
    }
    beyond
}

/// What there is: usable PUs, usable memory, pages by class; then PUs and memory beside the largest node of each host,
/// which VMs of several cells need.
fn supply(problem: &Problem) -> Vec<i128> {
    let classes = problem.sizes.len();
    let mut there: Vec<i128> = vec![0; classes + 4];
    let ratios = ratios(problem);
    for host in 0..problem.hosts.len() {
        let (mut pus, mut memory) = ((0i128, 0i128), (0i128, 0i128));
        for node in host_nodes(problem, host) {
            let cap = &problem.nodes[node];
            let all: u64 = (0..classes).map(|class| cap.pages[class] * problem.mib[class]).sum();
            let (usable, mib) = usable(u64::from(cap.pus()), all, ratios);
            pus = (pus.0 + usable, pus.1.max(usable));
            memory = (memory.0 + mib, memory.1.max(mib));
            for class in 0..classes {
                there[2 + class] += i128::from(pages(problem, node, class));
            }
        }
        there[0] += pus.0;
        there[1] += memory.0;
        there[2 + classes] += pus.0 - pus.1;
        there[3 + classes] += memory.0 - memory.1;
    }
    there
}

/// PUs that memory can be had for, and memory that PUs can be had for, by the leanest and the fattest of all VMs.
fn usable(pus: u64, mib: u64, ratios: Option<(u64, u64)>) -> (i128, i128) {
    let Some((least, most)) = ratios else { return (i128::from(pus), i128::from(mib)) };
    let (by_memory, by_pus) = (mib.checked_div(least).unwrap_or(pus), pus.saturating_mul(most));
    (i128::from(pus.min(by_memory)), i128::from(mib.min(by_pus)))
}

/// The least MiB any vCPU has, rounded down, and the most, rounded up; `None` where memory need not follow the vCPUs:
/// a VM that may be split as room is found, or vCPUs that are no PUs.
fn ratios(problem: &Problem) -> Option<(u64, u64)> {
    let (mut least, mut most) = (u64::MAX, 0);
    for shape in &problem.shapes {
        let Cells::Fixed(count) = shape.cells else { return None };
        if !shape.is_dedicated() {
            return None;
        }
        for cell in 0..count {
            let (vcpus, pages) = shape.cell(cell, count);
            let mib = pages * problem.mib[shape.class];
            least = least.min(mib / u64::from(vcpus.max(1)));
            most = most.max(mib.div_ceil(u64::from(vcpus.max(1))));
        }
    }
    (least <= most).then_some((least, most))
}

/// What a VM takes of [`supply`].
fn demand(problem: &Problem, shape: &Shape) -> Vec<i128> {
    let classes = problem.sizes.len();
    let mut needs = vec![0; classes + 4];
    let mib = problem.mib[shape.class];
    let pus = if shape.is_dedicated() { shape.vcpus } else { 0 };
    needs[0] = i128::from(pus);
    needs[1] = i128::from(shape.pages * mib);
    needs[2 + shape.class] = i128::from(shape.pages);
    if let Cells::Fixed(count) = shape.cells {
        // Of each VM the largest cell at most is on the host's largest node.
        let largest = (0..count).map(|cell| shape.cell(cell, count)).fold((0, 0), |m, c| (m.0.max(c.0), m.1.max(c.1)));
        needs[2 + classes] = i128::from(pus.saturating_sub(largest.0));
        needs[3 + classes] = i128::from(shape.pages.saturating_sub(largest.1) * mib);
    }
    needs
}

fn with(prices: &[i128], at: usize, price: i128) -> Vec<i128> {
    let mut changed = prices.to_vec();
    changed[at] = price;
    changed
}

/// How many of the largest are needed to reach a sum; `None` if all together do not.
fn fewest(amounts: impl Iterator<Item = u64>, sum: u64) -> Option<u64> {
    let mut amounts: Vec<u64> = amounts.collect();
    amounts.sort_unstable_by(|one, other| other.cmp(one));
    let (mut count, mut reached) = (0, 0u64);
    for amount in amounts {
        if reached >= sum {
            break;
        }
        reached = reached.saturating_add(amount);
        count += 1;
    }
    (reached >= sum).then_some(count)
}

/// Nodes beyond the first a VM needs on the best host.
fn extra(problem: &Problem, shape: &Shape) -> u64 {
    if shape.cells != Cells::Free {
        return 0;
    }
    let of_host = |host: usize| {
        let nodes = host_nodes(problem, host);
        let cpus = fewest(nodes.clone().map(|node| room(problem, node, shape)), u64::from(shape.vcpus))?;
        let memory = fewest(nodes.map(|node| pages(problem, node, shape.class)), shape.pages)?;
        Some(cpus.max(memory).saturating_sub(1))
    };
    let mut least = None;
    for host in (0..problem.hosts.len()).filter(|host| allowed(shape, *host)) {
        if let Some(count) = of_host(host) {
            least = Some(least.map_or(count, |least: u64| least.min(count)));
            if count == 0 {
                break;
            }
        }
    }
    least.unwrap_or(0)
}

/// Memory that must be away from the VM's main node.
fn remote(problem: &Problem, shape: &Shape) -> u64 {
    let mib = problem.mib[shape.class];
    match shape.cells {
        Cells::Fixed(1) => 0,
        Cells::Fixed(count) => {
            let least = (0..count).map(|cell| shape.cell(cell, count).1).min().unwrap_or(0);
            let seen = |host: &usize| allowed(shape, *host) && problem.hosts[*host].count >= count as usize;
            let mut nears: Vec<usize> =
                (0..problem.hosts.len()).filter(seen).map(|host| problem.hosts[host].near).collect();
            nears.sort_unstable();
            nears.dedup();
            let from = |near: usize| {
                let near = &problem.nears[near];
                let around = |home: usize| -> u64 {
                    near.around(home)
                        .iter()
                        .skip(1)
                        .take(count as usize - 1)
                        .map(|at| near.beyond(home, usize::from(*at)))
                        .sum()
                };
                (0..near.count()).map(around).min().unwrap_or(0)
            };
            nears.into_iter().map(from).min().unwrap_or(0) * least * mib
        }
        Cells::Free => {
            let hosts = (0..problem.hosts.len()).filter(|host| allowed(shape, *host));
            let mut least: Option<u64> = None;
            for host in hosts {
                let here = spread_over(problem, shape, host, least.unwrap_or(u64::MAX));
                least = least.into_iter().chain(here).min();
                if least == Some(0) {
                    break;
                }
            }
            least.unwrap_or(0) * mib
        }
    }
}

/// Pages times distance if a VM has a host to itself: its memory lies around its main node, the nearest nodes filled
/// first; the main node is the best of those that carry a vCPU. `None` if the host has not got so many pages, or if it
/// is not below `known`.
fn spread_over(problem: &Problem, shape: &Shape, host: usize, known: u64) -> Option<u64> {
    let first = problem.hosts[host].first;
    let near = problem.near(host);
    let there: Vec<u64> = host_nodes(problem, host).map(|node| pages(problem, node, shape.class)).collect();
    let mut best = None;
    let mut limit = known;
    for home in (0..near.count()).filter(|home| room(problem, first + home, shape) > 0) {
        let (mut left, mut cost) = (shape.pages, 0u64);
        for at in near.around(home) {
            let taken = left.min(there[usize::from(*at)]);
            cost = cost.saturating_add(taken.saturating_mul(near.beyond(home, usize::from(*at))));
            left -= taken;
            if left == 0 || cost >= limit {
                break;
            }
        }
        if left == 0 && cost < limit {
            (best, limit) = (Some(cost), cost);
        }
    }
    best
}

/// Cores that VMs must share, for plans that place everybody on so many nodes: the cores each VM is on at least, one
/// by one, are more than these nodes have.
pub(crate) fn shared_cores(problem: &Problem, nodes: u64) -> u64 {
    let threads = u64::from(problem.nodes.iter().map(|cap| cap.threads).max().unwrap_or(1));
    if threads < 2 {
        return 0;
    }
    let mut cores = problem.cores.clone();
    cores.sort_unstable_by(|one, other| other.cmp(one));
    let there: u64 = cores.iter().take(usize::try_from(nodes).unwrap_or(usize::MAX)).sum();
    let of_piece = |shape: &Shape, vcpus: u32| match shape.kind.smt {
        SmtPolicy::Isolate => u64::from(vcpus),
        _ => u64::from(vcpus).div_ceil(threads),
    };
    let of_vm = |vm: &crate::dense::DenseVm| {
        let shape = &problem.shapes[vm.shape];
        match shape.cells {
            _ if !shape.is_dedicated() => 0,
            // One that stays has what it has, which may be less than it asks for now.
            _ if vm.held || vm.fixed => u64::from(shape.vcpus).div_ceil(threads),
            Cells::Free => of_piece(shape, shape.vcpus),
            Cells::Fixed(count) => (0..count).map(|cell| of_piece(shape, shape.cell(cell, count).0)).sum(),
        }
    };
    let touched: u64 = problem.vms.iter().map(of_vm).sum();
    // A core has as many owners as PUs at most: it saves all of them but one.
    touched.saturating_sub(there).div_ceil(threads - 1)
}

/// Devices whose node no host tells.
fn devices(problem: &Problem, shape: &Shape) -> u64 {
    let of = |demand: &crate::dense::Demand| {
        if demand.locality == Locality::Far {
            return 0;
        }
        let hosts = (0..problem.hosts.len()).filter(|host| allowed(shape, *host));
        let mut slots = hosts.flat_map(|host| problem.slots[problem.hosts[host].slots.clone()].iter());
        let known = slots.any(|slot| slot.suits(demand.selector) && slot.node.is_some());
        if known { 0 } else { 2 * u64::from(demand.count) }
    };
    shape.demands.iter().map(of).sum()
}

/// PUs and memory all VMs need together: by dedicated vCPUs, and by pages of each class.
fn needs(problem: &Problem) -> (u64, Vec<u64>) {
    let mut pages = vec![0; problem.sizes.len()];
    let mut pus = 0;
    for vm in &problem.vms {
        let shape = &problem.shapes[vm.shape];
        pus += if shape.is_dedicated() { u64::from(shape.vcpus) } else { 0 };
        pages[shape.class] += shape.pages;
    }
    (pus, pages)
}

fn hosts(problem: &Problem, missed: u64) -> u64 {
    if problem.spread == SpreadHosts::Most {
        return (problem.hosts.len() as u64).saturating_sub(problem.vms.len() as u64);
    }
    let pus_of = |host: usize| host_nodes(problem, host).map(|node| problem.all_pus[node]).sum::<u64>();
    let all = 0..problem.hosts.len();
    if missed > 0 {
        // Only the vCPUs placed are fixed by the levels before; all of them must be dedicated to count as PUs.
        if problem.shapes.iter().any(|shape| !shape.is_dedicated()) {
            return 0;
        }
        let placed = needs(problem).0.saturating_sub(missed);
        return fewest(all.map(pus_of), placed).unwrap_or(0);
    }
    let (pus, by_class) = needs(problem);
    let mut least = fewest(all.clone().map(pus_of), pus).unwrap_or(0);
    for (class, need) in by_class.iter().enumerate() {
        let of = |host: usize| host_nodes(problem, host).map(|node| pages(problem, node, class)).sum::<u64>();
        least = least.max(fewest(all.clone().map(of), *need).unwrap_or(0));
    }
    for (index, members) in problem.members.iter().enumerate() {
        let apart = members.iter().filter(|vm| {
            let vm = &problem.vms[**vm as usize];
            // Who runs may break its group already.
            !vm.fixed
                && vm
                    .groups
                    .iter()
                    .any(|group| group.group == index && group.rule == Together::Apart && group.scope != Scope::Node)
        });
        least = least.max(apart.count() as u64);
    }
    // VMs of more than half the largest host share none.
    let most = all.map(pus_of).max().unwrap_or(0);
    let large = problem.vms.iter().filter(|vm| {
        let shape = &problem.shapes[vm.shape];
        shape.is_dedicated() && 2 * u64::from(shape.vcpus) > most
    });
    least.max(large.count() as u64)
}

fn nodes(problem: &Problem, missed: u64) -> u64 {
    if missed > 0 {
        return 0;
    }
    let (pus, by_class) = needs(problem);
    let all = 0..problem.nodes.len();
    let mut least = fewest(all.clone().map(|node| problem.all_pus[node]), pus).unwrap_or(0);
    for (class, need) in by_class.iter().enumerate() {
        least = least.max(fewest(all.clone().map(|node| pages(problem, node, class)), *need).unwrap_or(0));
    }
    let most = all.map(|node| problem.all_pus[node]).max().unwrap_or(0);
    let large = problem.vms.iter().map(|vm| {
        let shape = &problem.shapes[vm.shape];
        match shape.cells {
            _ if !shape.is_dedicated() => 0,
            // One that stays may be in small pieces.
            _ if vm.fixed => 0,
            Cells::Free => u64::from(2 * u64::from(shape.vcpus) > most),
            Cells::Fixed(count) => {
                (0..count).filter(|cell| 2 * u64::from(shape.cell(*cell, count).0) > most).count() as u64
            }
        }
    });
    least.max(large.sum())
}

const _: () = assert!(EXTRA == PRIORITIES, "levels of priorities come first");
