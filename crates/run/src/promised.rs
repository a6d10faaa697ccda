//! Memory of other runs: what they were promised, and what their guests have of it already.

use nearmetal_host::{GuestProcess, Host, HostFs, Residency, guests};
use nearmetal_units::{Bytes, PageSize};

use crate::reservation::Reservation;

/// The machine, with what guests of these runs have where this user may not see their pages: numa_maps of another user's process
/// takes root, but anybody may read how much it has in all. That counts up to what its run was promised, by its nodes' shares.
pub fn with_unseen(fs: &HostFs, mut host: Host, runs: &[Reservation]) -> Host {
    for run in runs {
        let is_unseen = |guest: &&mut GuestProcess| {
            guest.residency_error.is_some() && guest.uuid.as_deref() == Some(run.uuid.as_str())
        };
        let Some(guest) = host.guests.iter_mut().find(is_unseen) else { continue };
        let Ok(all) = guests::resident(fs, guest.pid, run.page_size.is_some()) else { continue };
        let size = run.page_size.unwrap_or(PageSize::SMALL);
        let promised = run.memory.iter().fold(Bytes::ZERO, |sum, share| sum.plus(share.bytes));
        // In pages, so that the product has room.
        let (all, of) = (all.min(promised).get() / size.bytes().get(), promised.pages(size).max(1));
        let pages = run.memory.iter().map(|share| (share.node, all.saturating_mul(share.bytes.pages(size)) / of));
        guest.residency.push(Residency {
            start: 0,
            page_size: size,
            length: promised,
            guest_memory: true,
            pages: pages.collect(),
            policy: String::new(),
            file: None,
        });
    }
    host
}

/// The machine without the memory that other runs were promised and do not hold yet: a guest takes its pages as it starts.
pub(crate) fn without_what_is_promised(host: &Host, others: &[Reservation]) -> Host {
    let mut host = host.clone();
    for other in others {
        let guest = host.guests.iter().find(|guest| guest.uuid.as_deref() == Some(other.uuid.as_str())).cloned();
        for share in &other.memory {
            let size = other.page_size.unwrap_or(PageSize::SMALL);
            let mut promised = share.bytes.less(held(guest.as_ref(), share.node, size));
            let Some(node) = host.nodes.iter_mut().find(|node| node.index == share.node) else { continue };
            let pool = node.pools.iter_mut().find(|pool| Some(pool.size) == other.page_size);
            if let Some(pool) = pool {
                let (pages, free) = (promised.pages(size), pool.free);
                pool.free = free.saturating_sub(pages);
                // What the pool does not have yet comes from the node.
                promised = size.bytes().times(pages.saturating_sub(free));
            }
            let reclaimable = node.memory_reclaimable.unwrap_or_default();
            let free = node.memory_free.unwrap_or_default();
            // What is free goes first; of what the kernel would drop, the rest.
            node.memory_reclaimable = node.memory_reclaimable.map(|_| reclaimable.less(promised.less(free)));
            node.memory_free = node.memory_free.map(|free| free.less(promised));
        }
    }
    host
}

/// The machine as it would be without the guests of these runs: their memory is free, and nobody is pinned to their PUs.
pub(crate) fn without_guests_of(host: &Host, runs: &[Reservation]) -> Host {
    let mut host = host.clone();
    for run in runs {
        let guest = host.guests.iter().position(|guest| guest.uuid.as_deref() == Some(run.uuid.as_str()));
        let guest = guest.map(|place| host.guests.remove(place));
        let size = run.page_size.unwrap_or(PageSize::SMALL);
        for node in &mut host.nodes {
            let back = held(guest.as_ref(), node.index, size);
            // Pages that were added to a pool for a run go back to the node with it.
            node.memory_free = node.memory_free.map(|free| free.plus(back));
        }
    }
    host
}

/// Memory of a guest in pages of a size on a node.
fn held(guest: Option<&GuestProcess>, node: u32, size: PageSize) -> Bytes {
    let mappings = guest.into_iter().flat_map(|guest| &guest.residency);
    let pages = mappings.filter(|mapping| mapping.guest_memory && mapping.page_size == size);
    let here = pages.flat_map(|mapping| &mapping.pages).filter(|(own, _)| *own == node);
    size.bytes().times(here.fold(0, |sum, (_, pages)| sum.saturating_add(*pages)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reservation::NodeShare;
    use crate::reservation::tests::reservation;
    use nearmetal_host::synthetic::Synthetic;
    use nearmetal_host::{Entry, MemoryTree};

    /// Two nodes of 8 GiB, on which a guest of a run runs whose pages this user may not see, and what anybody may read of its process.
    fn seen(run: &Reservation, status: &str) -> Host {
        let mut tree = MemoryTree::new();
        tree.put("/proc/70/status", Entry::File(status.as_bytes().to_vec())).unwrap();
        let machine = Synthetic::new().packages(2).memory_per_node(Bytes::from_mib(8192)).pool(PageSize::HUGE_2M, 0);
        let guest = GuestProcess {
            pid: 70,
            uuid: Some(run.uuid.clone()),
            residency_error: Some("denied".to_owned()),
            ..GuestProcess::default()
        };
        let host = Host { guests: vec![guest], ..machine.build() };
        with_unseen(&HostFs::of_tree(tree, "test"), host, std::slice::from_ref(run))
    }

    /// Free MiB of a node.
    fn free(host: &Host, node: usize) -> u64 {
        host.nodes[node].memory_free.unwrap().kib() >> 10
    }

    #[test]
    fn what_a_guest_has_is_not_promised_again_though_this_user_may_not_see_where_its_pages_are() {
        let shares = |memory: &[(u32, u64)]| Reservation {
            memory: memory.iter().map(|(node, mib)| NodeShare { node: *node, bytes: Bytes::from_mib(*mib) }).collect(),
            ..reservation("run-a", "1")
        };
        let status = |small: u64, huge: u64| {
            format!("Name:\tqemu\nVmRSS:\t{:>8} kB\nHugetlbPages:\t{:>8} kB\n", small << 10, huge << 10)
        };
        let one = shares(&[(0, 1024)]);
        for (has, left) in [(0, 1024), (1000, 24), (1100, 0)] {
            let host = seen(&one, &status(has, 4096));
            let before = free(&host, 0);
            assert_eq!(free(&without_what_is_promised(&host, std::slice::from_ref(&one)), 0), before - left, "{has}");
            // And no more of it comes back than it was promised: the rest is QEMU's own.
            assert_eq!(free(&without_guests_of(&host, std::slice::from_ref(&one)), 0), before + 1024 - left, "{has}");
        }
        let two = shares(&[(0, 1024), (1, 3072)]);
        let host = seen(&two, &status(2048, 0));
        let left = without_what_is_promised(&host, std::slice::from_ref(&two));
        assert_eq!([0, 1].map(|node| free(&host, node) - free(&left, node)), [512, 1536]);
        // What is in pools is counted for itself.
        let huge = Reservation { page_size: Some(PageSize::HUGE_2M), ..one };
        let host = seen(&huge, &status(60, 768));
        let left = without_what_is_promised(&host, std::slice::from_ref(&huge));
        assert_eq!(free(&host, 0) - free(&left, 0), 256);
        // Where nothing is known, all of it is promised.
        let host = seen(&huge, "Name:\tqemu\n");
        let left = without_what_is_promised(&host, std::slice::from_ref(&huge));
        assert_eq!(free(&host, 0) - free(&left, 0), 1024);
    }
}
