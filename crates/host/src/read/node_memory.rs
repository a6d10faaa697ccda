//! What lies between a node's memory and its users: latencies, bandwidths, memory-side caches, tiers.
//!
//! Documentation/admin-guide/mm/numaperf.rst, Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers.

use nearmetal_units::{Bytes, NodeSet};

use crate::facts::{Facts, index_after};
use crate::parse::{node_list, number};
use crate::{MemoryAccess, MemorySideCache, NumaNode};

/// Classes of access that the kernel gives initiators or figures for.
pub(super) fn access(facts: &mut Facts<'_>, root: &str) -> Vec<MemoryAccess> {
    let mut found = Vec::new();
    // 0: any initiator; 1: processors. No kernel has more.
    for class in 0..2 {
        let directory = format!("{root}/access{class}/initiators");
        let names = facts.list(&directory);
        let mut figure = |name: &str| facts.optional(&format!("{directory}/{name}"), number).filter(|value| *value > 0);
        let access = MemoryAccess {
            class,
            read_latency: figure("read_latency"),
            write_latency: figure("write_latency"),
            read_bandwidth: figure("read_bandwidth"),
            write_bandwidth: figure("write_bandwidth"),
            initiators: names.iter().filter_map(|name| index_after(name, "node")).collect::<NodeSet>(),
        };
        if access != (MemoryAccess { class, ..MemoryAccess::default() }) {
            found.push(access);
        }
    }
    found
}

pub(super) fn side_caches(facts: &mut Facts<'_>, root: &str) -> Vec<MemorySideCache> {
    let root = format!("{root}/memory_side_cache");
    let mut caches = Vec::new();
    for name in facts.list(&root) {
        let Some(level) = index_after(&name, "index") else { continue };
        let mut value = |file: &str| facts.optional(&format!("{root}/{name}/{file}"), number);
        caches.push(MemorySideCache {
            level,
            size: value("size").map(Bytes::new),
            line: value("line_size").map(Bytes::new),
            indexing: value("indexing"),
            write_policy: value("write_policy"),
        });
    }
    caches
}

/// Tiers, since Linux 6.1.
pub(super) fn tiers(facts: &mut Facts<'_>, nodes: &mut [NumaNode]) {
    const TIERS: &str = "/sys/devices/virtual/memory_tiering";
    for name in facts.list(TIERS) {
        let Some(tier) = index_after(&name, "memory_tier") else { continue };
        let members = facts.optional(&format!("{TIERS}/{name}/nodelist"), node_list).unwrap_or_default();
        for node in nodes.iter_mut().filter(|node| members.contains(node.index)) {
            node.tier = Some(tier);
        }
    }
}
