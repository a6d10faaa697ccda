//! Nodes and cores.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_units::{CpuSet, PageSize};

use super::table::Table;
use super::{or_dash, shown};
use crate::{Core, Host, HugepagePool, NumaNode, Processor};

/// Above this many nodes a matrix of distances is too wide to read: only the range is shown.
const MOST_DISTANCES: usize = 16;

pub(super) fn nodes(host: &Host) -> String {
    let mut table = Table::new("NODES (pools: free of total pages)", &[">node", "PUs", ">memory", ">free"]);
    let sizes: BTreeSet<PageSize> = host.nodes.iter().flat_map(|node| &node.pools).map(|pool| pool.size).collect();
    for size in &sizes {
        table.column(format!("{size} pool"), true);
    }
    let matrix = host.nodes.len() <= MOST_DISTANCES;
    if matrix {
        // The heading stands beside the first number and is a column of its own, so that numbers align.
        table.column("distance to".to_owned(), false);
        host.nodes.iter().for_each(|node| table.column(node.index.to_string(), true));
    } else {
        table.column("distance: own, others".to_owned(), false);
    }
    for node in &host.nodes {
        let cpus = if node.cpus.is_empty() { "-".to_owned() } else { node.cpus.to_string() };
        let mut cells = vec![node.index.to_string(), cpus, shown(node.memory_total), shown(node.memory_free)];
        cells.extend(sizes.iter().map(|size| or_dash(node.pool(*size).map(pool))));
        if matrix {
            cells.push(String::new());
            cells.extend(host.nodes.iter().map(|other| shown(node.distance(other.index))));
        } else {
            cells.push(distance_range(node));
        }
        table.row(cells);
    }
    table.render()
}

fn pool(pool: &HugepagePool) -> String {
    let surplus = if pool.surplus > 0 { format!(", {} surplus", pool.surplus) } else { String::new() };
    format!("{} of {}{surplus}", pool.free, pool.total)
}

fn distance_range(node: &NumaNode) -> String {
    let others = || node.distances.iter().filter(|(other, _)| *other != node.index).map(|(_, distance)| *distance);
    let range = others().min().zip(others().max()).map(|(low, high)| format!("{low}-{high}"));
    format!("{}, {}", shown(node.distance(node.index)), shown(range))
}

/// The last-level cache of a core.
#[derive(PartialEq)]
enum Cache {
    Unknown,
    OwnOfEachCore,
    Shared(CpuSet),
}

impl Cache {
    fn first(&self) -> Option<u32> {
        match self {
            Self::Shared(cpus) => cpus.first(),
            _ => None,
        }
    }

    /// A cache whose PUs are dealt out one by one would take the whole line.
    fn shown(&self) -> String {
        const WIDEST: usize = 24;
        match self {
            Self::Unknown => "?".to_owned(),
            Self::OwnOfEachCore => "one per core".to_owned(),
            Self::Shared(cpus) if cpus.to_string().len() > WIDEST => {
                format!("{} PUs from {}", cpus.len(), shown(cpus.first()))
            }
            Self::Shared(cpus) => cpus.to_string(),
        }
    }
}

/// One row for each group of cores that share package, node and last-level cache.
pub(super) fn cores(host: &Host) -> String {
    let mut table =
        Table::new("CORES (PUs of one core joined by +)", &[">package", ">node", "last-level cache", "cores"]);
    let processors: BTreeMap<u32, &Processor> = host.processors.iter().map(|cpu| (cpu.index, cpu)).collect();
    let cache_of = |core: &Core| match core.cpus.first().and_then(|cpu| processors.get(&cpu)?.last_level_cache.as_ref())
    {
        None => Cache::Unknown,
        Some(cache) if *cache == core.cpus => Cache::OwnOfEachCore,
        Some(cache) => Cache::Shared(cache.clone()),
    };
    let mut cores: Vec<_> = host.cores.iter().map(|core| (core.package, core.node, cache_of(core), core)).collect();
    cores.sort_by(|left, right| {
        let key = |(package, node, cache, core): &(Option<u32>, Option<u32>, Cache, &Core)| {
            (*package, *node, cache.first(), core.cpus.first())
        };
        key(left).cmp(&key(right))
    });
    for group in cores.chunk_by(|left, right| (left.0, left.1, &left.2) == (right.0, right.1, &right.2)) {
        let (package, node, cache, _) = &group[0];
        let names: Vec<String> = group
            .iter()
            .map(|(_, _, _, core)| core.cpus.iter().map(|cpu| cpu.to_string()).collect::<Vec<_>>().join("+"))
            .collect();
        table.row(vec![shown(*package), shown(*node), cache.shown(), names.join(" ")]);
    }
    let mut text = table.render();
    let offline: Vec<String> =
        host.processors.iter().filter(|cpu| !cpu.online).map(|cpu| cpu.index.to_string()).collect();
    if !offline.is_empty() {
        text.push_str(&format!("offline: {}\n", offline.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Numbering, Synthetic};

    #[test]
    fn caches_of_single_cores_and_dealt_ones_stay_short() {
        let own = Synthetic::new().caches_per_node(4).cores_per_node(4).threads(2).build();
        assert!(cores(&own).ends_with("      0     0  one per core      0+1 2+3 4+5 6+7\n"), "{}", cores(&own));
        let dealt = Synthetic::new().packages(2).cores_per_node(20).numbering(Numbering::Dealt).build();
        assert!(cores(&dealt).contains("  20 PUs from 1     1 3 5"), "{}", cores(&dealt));
    }

    #[test]
    fn many_nodes_show_a_range_of_distances() {
        let host = Synthetic::new().packages(10).nodes_per_package(2).build();
        assert!(nodes(&host).contains("10, 12-20"), "{}", nodes(&host));
    }
}
