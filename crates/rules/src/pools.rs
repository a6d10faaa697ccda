//! Hugepage pools against what a definition asks of them.

use nearmetal_host::Host;
use nearmetal_units::{Bytes, NodeSet, PageSize};

use crate::subject::Subject;

/// Memory a definition takes from pools, and the nodes each part may come from: one part for each cell.
pub(crate) fn demands(subject: &Subject<'_>, host: &Host) -> Vec<(Bytes, NodeSet)> {
    let tune = subject.facts.numatune.as_ref();
    let whole = || tune.and_then(|tune| tune.nodes.clone()).unwrap_or_else(|| host.node_set());
    let cells = subject.facts.cells.iter().map(|cell| {
        let own = tune.and_then(|tune| tune.cells.iter().find(|memory| memory.cell == cell.id)?.nodes.clone());
        (cell.memory, own.unwrap_or_else(whole))
    });
    let demands: Vec<_> = cells.collect();
    if demands.is_empty() { vec![(subject.facts.memory, whole())] } else { demands }
}

/// Free pages of one size on these nodes.
pub(crate) fn free_pages(host: &Host, nodes: &NodeSet, size: PageSize) -> u64 {
    let pools = host.nodes.iter().filter(|node| nodes.contains(node.index)).filter_map(|node| node.pool(size));
    pools.map(|pool| pool.free).sum()
}
