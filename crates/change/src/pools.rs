//! Resizing a hugepage pool, and the kernel's ways of not quite doing it.

use std::thread::sleep;

use nearmetal_units::PageSize;

use crate::ChangeError;
use crate::kernel::{persistent_pages, pool_directory};
use crate::machine::Machine;

/// How often growing is tried. Pages come free while the kernel compacts and writes back; a pool that did not grow in
/// a few attempts does not grow.
const ATTEMPTS: u32 = 5;

/// Sets the persistent pages of a pool and reads them back.
///
/// The kernel gives as many pages as it finds and reports success; what it gave shows only in the count.
pub(crate) fn resize(machine: &Machine<'_>, node: u32, size: PageSize, wanted: u64) -> Result<(), ChangeError> {
    let path = format!("{}/nr_hugepages", pool_directory(node, size));
    let mut target = wanted;
    let mut got = 0;
    for attempt in 1..=ATTEMPTS {
        machine.kernel.write(&path, &target.to_string())?;
        got = persistent_pages(machine.kernel, node, size)?;
        if got == wanted {
            return Ok(());
        }
        if got > wanted {
            // The kernel balances the node's count against the machine's total with surplus pages in it (hugetlb.c,
            // set_max_huge_pages), so beside a pool in surplus the result is off by that many: ask for so many fewer.
            target = target.saturating_sub(got - wanted);
        } else if attempt < ATTEMPTS {
            // Root only, and harmless: pages are moved together, none is dropped. Not every kernel has it.
            let _ = machine.kernel.write("/proc/sys/vm/compact_memory", "1");
            sleep(machine.patience);
        }
    }
    Err(ChangeError::PoolTooSmall { node, size, wanted, got, attempts: ATTEMPTS })
}
