//! Last moves between nodes that are equally good at every level of the search: so that functions and large pages are
//! not left where no PU is.

use super::construct::Constructor;
use crate::dense::State;

/// Places tried.
const LIMIT: u32 = 1000;

/// Moves VMs of one node within their hosts while less is stranded by it and no level of the search gets worse.
pub(crate) fn settle(state: &mut State<'_>, constructor: &mut Constructor) {
    let problem = state.problem;
    let mut tried = 0;
    constructor.allowed.anything();
    for host in 0..problem.hosts.len() {
        let dense = &problem.hosts[host];
        let nodes = dense.first..dense.first + dense.count;
        let devices = nodes.clone().any(|node| problem.has_devices[node]);
        if state.host_vms[host] == 0 || (!devices && nodes.clone().all(|node| problem.gib_pages[node] == 0)) {
            continue;
        }
        let mut sum: u64 = nodes.clone().map(|node| state.stranded(node)).sum();
        let vms: Vec<usize> = state.on_host(host).map(|(vm, _)| vm).collect();
        for vm in vms {
            let single = state.assigns[vm].as_ref().is_some_and(|assign| assign.pieces.len() == 1);
            if sum == 0 || tried >= LIMIT {
                break;
            }
            if !single || problem.vms[vm].fixed || problem.shape_of(vm).demands.len() > 1 {
                continue;
            }
            let mut best = state.value;
            let Some(mut own) = state.take(vm) else { continue };
            constructor.allowed.prepare(state, vm);
            for node in nodes.clone() {
                tried += 1;
                if !constructor.allowed.node(node) || own.pieces[0].node as usize == node {
                    continue;
                }
                let Some((_, place)) = constructor.finder.at(state, problem.shape_of(vm), host, &[node]) else {
                    continue;
                };
                state.put(vm, place);
                let after: u64 = nodes.clone().map(|node| state.stranded(node)).sum();
                let (better, value) = (after < sum && state.value <= best, state.value);
                let Some(place) = state.take(vm) else { continue };
                if better {
                    (own, sum, best) = (place, after, value);
                }
            }
            state.put(vm, own);
        }
    }
}
