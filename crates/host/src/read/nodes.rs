//! NUMA nodes: CPUs, memory, distances, hugepage pools.
//!
//! Documentation/ABI/stable/sysfs-devices-node; pools in Documentation/admin-guide/mm/hugetlbpage.rst.

use nearmetal_units::{Bytes, CpuSet, PageSize};

use super::node_memory;
use crate::facts::{Facts, index_after, parsed};
use crate::parse::{Parsed, cpu_list, cpu_mask, malformed, node_list, number, number_u32, page_size_kib};
use crate::{HugepagePool, NumaNode, ReadError};

const ROOT: &str = "/sys/devices/system/node";

pub(super) fn read(facts: &mut Facts<'_>, online: &CpuSet) -> Vec<NumaNode> {
    let mut indices: Vec<u32> = facts.list(ROOT).iter().filter_map(|name| index_after(name, "node")).collect();
    indices.sort_unstable();
    indices.dedup();
    // Directories of nodes that are offline exist in captures put together by hand. An unreadable list changes nothing.
    if let Some(online) = facts.optional(&format!("{ROOT}/online"), node_list) {
        if indices.iter().any(|index| online.contains(*index)) {
            indices.retain(|index| online.contains(*index));
        }
    }
    if indices.is_empty() {
        return vec![whole_machine(facts, online)];
    }
    let mut nodes: Vec<NumaNode> = indices.iter().map(|index| read_node(facts, *index, &indices, online)).collect();
    node_memory::tiers(facts, &mut nodes);
    nodes
}

/// One node of everything, distance unknown: of a kernel without NUMA, and of whoever asks for the sum.
pub(crate) fn whole_machine(facts: &mut Facts<'_>, online: &CpuSet) -> NumaNode {
    let (memory_total, memory_free) = memory(facts, "/proc/meminfo");
    NumaNode {
        index: 0,
        cpus: online.clone(),
        memory_total,
        memory_free,
        memory_reclaimable: reclaimable(facts, "/proc/meminfo"),
        distances: Vec::new(),
        pools: pools(facts, "/sys/kernel/mm/hugepages"),
        ..NumaNode::default()
    }
}

fn read_node(facts: &mut Facts<'_>, index: u32, indices: &[u32], online: &CpuSet) -> NumaNode {
    let root = format!("{ROOT}/node{index}");
    let (memory_total, memory_free) = memory(facts, &format!("{root}/meminfo"));
    // One number for each present node, in order of their indices, which may have gaps.
    let distances = facts.required(&format!("{root}/distance"), |line| {
        let values: Vec<u32> = line.split_ascii_whitespace().map(number_u32).collect::<Parsed<_>>()?;
        match values.len() == indices.len() {
            true => Ok(indices.iter().copied().zip(values).collect()),
            false => malformed(format!("{} distances for {} nodes", values.len(), indices.len())),
        }
    });
    NumaNode {
        index,
        cpus: cpus(facts, &root).intersection(online),
        memory_total,
        memory_free,
        memory_reclaimable: reclaimable(facts, &format!("{root}/meminfo")),
        distances: distances.unwrap_or_default(),
        pools: pools(facts, &format!("{root}/hugepages")),
        access: node_memory::access(facts, &root),
        side_caches: node_memory::side_caches(facts, &root),
        tier: None,
    }
}

/// The mask, the list (since Linux 2.6.26), or the links to the node's PUs.
fn cpus(facts: &mut Facts<'_>, root: &str) -> CpuSet {
    if let Some(cpus) = facts.optional(&format!("{root}/cpumap"), cpu_mask) {
        return cpus;
    }
    if let Some(cpus) = facts.optional(&format!("{root}/cpulist"), cpu_list) {
        return cpus;
    }
    let cpus: CpuSet = facts.list(root).iter().filter_map(|name| index_after(name, "cpu")).collect();
    if cpus.is_empty() {
        facts.absent(&format!("{root}/cpulist"));
    }
    cpus
}

/// MemTotal and MemFree of a meminfo file.
fn memory(facts: &mut Facts<'_>, path: &str) -> (Option<Bytes>, Option<Bytes>) {
    let text = match facts.fs.read(path) {
        Ok(text) => text,
        Err(error) => {
            if error.is_missing() {
                facts.absent(path);
            }
            facts.note(error);
            return (None, None);
        }
    };
    let mut amount = |name: &str| {
        let result = parsed(path, &text, |text| meminfo(text, name));
        facts.noted(result)
    };
    let (total, free) = (amount("MemTotal:"), amount("MemFree:"));
    match (total, free) {
        (Some(total), Some(free)) if free > total => {
            facts.note(ReadError::unreadable(path, &text, format!("MemFree {free} is more than MemTotal {total}")));
            (None, None)
        }
        both => both,
    }
}

/// What the kernel gives up for whoever needs memory: file pages and reclaimable slab, the terms of its own MemAvailable
/// (mm/show_mem.c, si_mem_available). A missing file has been noted with MemTotal; a kernel without a line has less to say.
fn reclaimable(facts: &Facts<'_>, path: &str) -> Option<Bytes> {
    let text = facts.fs.read(path).ok()?;
    let amounts = ["Active(file):", "Inactive(file):", "SReclaimable:"].map(|name| meminfo(&text, name).ok());
    amounts.into_iter().flatten().reduce(Bytes::plus)
}

/// One line: `Node 0 MemTotal:  131072 kB`, or without `Node 0` in /proc/meminfo.
pub(super) fn meminfo(text: &str, name: &str) -> Parsed<Bytes> {
    for line in text.split_inclusive('\n') {
        let Some((before, value)) = line.split_once(name) else { continue };
        let own = before.is_empty() || before.starts_with("Node ");
        let Some(kib) = value.trim_end().strip_suffix(" kB").filter(|_| own) else {
            return malformed(format!("expected `{name} NUMBER kB`"));
        };
        return number(kib.trim_start()).map(Bytes::from_kib);
    }
    malformed(format!("there is no line `{name}`"))
}

/// Pools of all sizes under a `hugepages` directory. A pool with a damaged figure is left out whole.
fn pools(facts: &mut Facts<'_>, root: &str) -> Vec<HugepagePool> {
    let mut pools = Vec::new();
    for name in facts.list(root) {
        let Some(size) = name.strip_prefix("hugepages-") else { continue };
        let directory = format!("{root}/{name}");
        let size = parsed(&directory, size, pool_size);
        let Some(size) = facts.noted(size) else { continue };
        let mut count = |file: &str| facts.required(&format!("{directory}/{file}"), number);
        let (total, free, surplus) = (count("nr_hugepages"), count("free_hugepages"), count("surplus_hugepages"));
        let (Some(total), Some(free), Some(surplus)) = (total, free, surplus) else { continue };
        pools.push(HugepagePool { size, total, free, surplus });
    }
    pools.sort_by_key(|pool| pool.size);
    pools
}

pub(super) fn pool_size(text: &str) -> Parsed<PageSize> {
    match text.strip_suffix("kB") {
        Some(kib) => page_size_kib(kib),
        None => malformed("expected hugepages-NUMBERkB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn meminfo_of_a_node_and_of_the_machine() {
        let node = "\nNode 3 MemTotal:       16777216 kB\nNode 3 MemFree:          1024 kB\n";
        assert_eq!(meminfo(node, "MemTotal:"), Ok(Bytes::from_mib(16384)));
        assert_eq!(meminfo("MemTotal: 1024 kB\n", "MemTotal:"), Ok(Bytes::from_mib(1)));
        assert_eq!(meminfo("Node 250 MemTotal: 0 kB\n", "MemTotal:"), Ok(Bytes::ZERO));
        for junk in
            ["", "Node 0 MemTotal: 16777", "MemTotal: x kB\n", "MemTotal:\n", "Node 0 MemTot", "xMemTotal: 1 kB"]
        {
            assert!(meminfo(junk, "MemTotal:").is_err(), "{junk:?}");
        }
    }

    #[test]
    fn pool_sizes_are_page_sizes() {
        assert_eq!(pool_size("2048kB"), Ok(PageSize::HUGE_2M));
        for junk in ["", "kB", "2048", "3kB", "2MB"] {
            assert!(pool_size(junk).is_err(), "{junk}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = (meminfo(&text, "MemTotal:"), meminfo(&format!("MemTotal:{text}"), "MemTotal:"), pool_size(&text));
        }
    }
}
