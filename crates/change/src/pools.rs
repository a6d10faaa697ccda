//! Resizing a hugepage pool, and the kernel's ways of not quite doing it.

use std::thread::sleep;
use std::time::Duration;

use nearmetal_units::PageSize;

use crate::ChangeError;
use crate::kernel::{Kernel, persistent_pages, pool_directory};

/// How often growing is tried. Pages come free while the kernel compacts and writes back; a pool that did not grow in
/// a few attempts does not grow.
const ATTEMPTS: u32 = 5;
/// The wait between two of them on a real machine.
pub const POOL_PATIENCE: Duration = Duration::from_millis(500);

/// Sets the persistent pages of a pool and reads them back.
///
/// The kernel gives as many pages as it finds and reports success; what it gave shows only in the count.
/// `patience` is the wait between two attempts to grow it.
pub fn resize_pool(
    kernel: &dyn Kernel,
    node: u32,
    size: PageSize,
    wanted: u64,
    patience: Duration,
) -> Result<(), ChangeError> {
    let path = format!("{}/nr_hugepages", pool_directory(node, size));
    let mut target = wanted;
    let mut got = 0;
    for attempt in 1..=ATTEMPTS {
        kernel.write(&path, &target.to_string())?;
        got = persistent_pages(kernel, node, size)?;
        if got == wanted {
            return Ok(());
        }
        if got > wanted {
            // The kernel balances the node's count against the machine's total with surplus pages in it (hugetlb.c,
            // set_max_huge_pages), so beside a pool in surplus the result is off by that many: ask for so many fewer.
            target = target.saturating_sub(got - wanted);
        } else if attempt < ATTEMPTS {
            // Root only, and harmless: pages are moved together, none is dropped. Not every kernel has it.
            let _ = kernel.write("/proc/sys/vm/compact_memory", "1");
            sleep(patience);
        }
    }
    Err(ChangeError::PoolTooSmall { node, size, wanted, got, attempts: ATTEMPTS })
}
