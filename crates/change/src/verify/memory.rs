//! Where a guest's pages are, of which size, and whether the pools behind them stay.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use nearmetal_host::GuestProcess;
use nearmetal_place::{Placement, Plan};
use nearmetal_units::{Bytes, PageSize};

use super::{Check, CheckKind, ObservedPool};

/// One check per (page size, node) that holds guest memory.
pub(super) fn residency(placement: &Placement, guest: &GuestProcess) -> Vec<Check> {
    let place = format!("/proc/{}/numa_maps", guest.pid);
    let memory = &placement.memory;
    if memory.nodes.is_empty() {
        return Vec::new();
    }
    let planned = match memory.page_size {
        Some(size) => format!("{} pages of {size}, all on nodes {}", memory.pages, memory.nodes),
        None => format!("every page on nodes {}", memory.nodes),
    };
    if let Some(why) = &guest.residency_error {
        return vec![Check::cannot_tell(CheckKind::Memory, "guest memory", planned, why).at(place)];
    }
    let mut pages: BTreeMap<(PageSize, u32), u64> = BTreeMap::new();
    for mapping in guest.residency.iter().filter(|mapping| mapping.guest_memory) {
        for (node, count) in &mapping.pages {
            *pages.entry((mapping.page_size, *node)).or_default() += count;
        }
    }
    if pages.values().all(|count| *count == 0) {
        let why = "the guest has not touched any of it yet: verify again once it has";
        return vec![Check::cannot_tell(CheckKind::Memory, "guest memory", planned, why).at(place)];
    }
    let in_all = memory.page_size.and_then(|size| whole(placement, size, &pages, &planned, &place));
    // A page size above the base one may be given by transparent huge pages where none is planned.
    let right_size = |size: PageSize| memory.page_size.is_none_or(|wanted| wanted == size);
    pages
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|((size, node), count)| {
            let fits = right_size(*size) && memory.nodes.contains(*node);
            let found = format!("{count} pages of {size} on node {node} ({})", amount(*size, *count));
            Check::compared(CheckKind::Memory, format!("guest memory on node {node}"), planned.clone(), found, fits)
                .at(place.clone())
        })
        .chain(in_all)
        .collect()
}

/// Pages of the planned size that are too many or too few: a guest that was given more memory since takes them from a pool that others
/// stand on, and where the missing ones will be nobody knows yet.
fn whole(
    placement: &Placement,
    size: PageSize,
    pages: &BTreeMap<(PageSize, u32), u64>,
    planned: &str,
    place: &str,
) -> Option<Check> {
    let found: u64 = pages.iter().filter(|((own, _), _)| *own == size).map(|(_, count)| count).sum();
    let (subject, wanted) = ("guest memory in all", placement.memory.pages);
    let check = match found.cmp(&wanted) {
        Ordering::Equal => return None,
        Ordering::Greater => {
            let found = format!("{found} pages of {size} ({})", amount(size, found));
            Check::compared(CheckKind::Memory, subject, planned, found, false)
        }
        // Pages of another size in their place are named already.
        Ordering::Less if pages.iter().any(|((own, _), count)| *own != size && *count > 0) => return None,
        Ordering::Less => {
            let why = format!("{found} pages are there, and the guest has not touched the others yet");
            Check::cannot_tell(CheckKind::Memory, subject, planned, why)
        }
    };
    Some(check.at(place))
}

fn amount(size: PageSize, count: u64) -> Bytes {
    size.bytes().times(count)
}

/// One check per pool the guest stands on.
pub(super) fn pools(plan: &Plan, placement: &Placement, seen: &[ObservedPool]) -> Vec<Check> {
    planned_pools(plan, placement)
        .into_iter()
        .map(|(node, size, wanted)| {
            let subject = format!("pool of {size} pages on node {node}");
            let planned = format!("{wanted} pages that stay");
            let place = crate::kernel::pool_directory(node, size);
            let pages = seen.iter().find(|pool| (pool.node, pool.size) == (node, size)).map(|pool| &pool.pages);
            match pages {
                Some(Ok((total, surplus))) => {
                    let stay = total.saturating_sub(*surplus);
                    let found = if *surplus > 0 {
                        format!("{stay} pages that stay ({total}, {surplus} of them surplus)")
                    } else {
                        format!("{stay} pages that stay")
                    };
                    // More is no fault: another plan may have grown the pool since.
                    Check::compared(CheckKind::Pool, subject, planned, found, stay >= wanted).at(place)
                }
                Some(Err(why)) => Check::cannot_tell(CheckKind::Pool, subject, planned, why).at(place),
                None => Check::cannot_tell(CheckKind::Pool, subject, planned, "it was not read").at(place),
            }
        })
        .collect()
}

/// The pools a guest stands on: (node, size, persistent pages). Where the plan changes a pool, all that it is to have;
/// else what this guest takes from it.
pub(super) fn planned_pools(plan: &Plan, placement: &Placement) -> Vec<(u32, PageSize, u64)> {
    let Some(size) = placement.memory.page_size else { return Vec::new() };
    let changes = plan.pools.iter().filter(|pool| pool.size == size && placement.memory.nodes.contains(pool.node));
    let mut pools: Vec<_> = changes.map(|pool| (pool.node, pool.size, pool.after)).collect();
    // On several nodes the kernel shares the pages out, and what each gives is not planned.
    if let (true, Some(node), 1) = (pools.is_empty(), placement.memory.nodes.first(), placement.memory.nodes.len()) {
        pools.push((node, size, placement.memory.pages));
    }
    pools
}
