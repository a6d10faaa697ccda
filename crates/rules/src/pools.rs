//! Hugepage pools against what definitions ask of them.

use nearmetal_domain::DomainFacts;
use nearmetal_host::Host;
use nearmetal_units::{Bytes, NodeSet, PageSize};

/// Memory a definition takes from pools, and the nodes each part may come from: one part for each cell.
pub(crate) fn demands(facts: &DomainFacts, host: &Host) -> Vec<(Bytes, NodeSet)> {
    let tune = facts.numatune.as_ref();
    let whole = || tune.and_then(|tune| tune.nodes.clone()).unwrap_or_else(|| host.node_set());
    let cells = facts.cells.iter().map(|cell| {
        let own = tune.and_then(|tune| tune.cells.iter().find(|memory| memory.cell == cell.id)?.nodes.clone());
        (cell.memory, own.unwrap_or_else(whole))
    });
    let demands: Vec<_> = cells.collect();
    if demands.is_empty() { vec![(facts.memory, whole())] } else { demands }
}

/// Pages of one size that a definition can take from these nodes alone: cells may share a node's pool.
pub(crate) fn asked(facts: &DomainFacts, host: &Host, nodes: &NodeSet, size: PageSize) -> u64 {
    let here = demands(facts, host).into_iter().filter(|(_, own)| own.is_subset(nodes));
    here.map(|(memory, _)| memory.pages(size)).sum()
}

/// Free pages of one size on these nodes.
pub(crate) fn free_pages(host: &Host, nodes: &NodeSet, size: PageSize) -> u64 {
    let pools = host.nodes.iter().filter(|node| nodes.contains(node.index)).filter_map(|node| node.pool(size));
    pools.map(|pool| pool.free).sum()
}
