//! Which NUMA nodes new pages come from, and which node a page is on: `set_mempolicy(2)`, `get_mempolicy(2)`,
//! `move_pages(2)` as a query.
#![allow(unsafe_code, reason = "three system calls that take pointers to masks and page lists")]

use std::io;

use nearmetal_units::NodeSet;

/// Nodes a mask can name: the largest MAX_NUMNODES of x86 (arch/x86/Kconfig, NODES_SHIFT 10).
pub const NODE_LIMIT: u32 = 1024;
const WORDS: usize = NODE_LIMIT as usize / 64;
/// The kernel uses one bit less than it is told (mm/mempolicy.c, get_nodes).
const MASK_BITS: libc::c_ulong = NODE_LIMIT as libc::c_ulong + 1;
/// Upper bits of a mode are flags (include/uapi/linux/mempolicy.h).
const MODE_FLAGS: i32 = 0xe000;

/// The memory policy of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The kernel's name: `default`, `preferred`, `bind`, `interleave`, `local`, …
    pub mode: &'static str,
    /// The nodes it names; empty for `default` and `local`.
    pub nodes: NodeSet,
}

/// Makes every new page of the calling thread (and of threads and programs it starts later) come from these nodes.
///
/// # Errors
/// The kernel's: `EINVAL` when no node of the mask has memory or is allowed, `ENOSYS` without NUMA support.
pub fn bind(nodes: &NodeSet) -> io::Result<()> {
    let mut mask = [0u64; WORDS];
    for node in nodes.iter() {
        let word = mask.get_mut(node as usize / 64).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word |= 1 << (node % 64);
    }
    // SAFETY: the kernel reads MASK_BITS - 1 bits from `mask`, which has as many and lives through the call.
    let answer = unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_BIND, mask.as_ptr(), MASK_BITS) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The memory policy of the calling thread.
///
/// # Errors
/// The kernel's: `ENOSYS` without NUMA support.
pub fn get() -> io::Result<Policy> {
    let mut mask = [0u64; WORDS];
    let mut mode: libc::c_int = 0;
    let nowhere = std::ptr::null::<libc::c_void>();
    // SAFETY: the kernel writes one int to `mode` and MASK_BITS - 1 bits to `mask`; both live through the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, mask.as_mut_ptr(), MASK_BITS, nowhere, 0) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let mode = match mode & !MODE_FLAGS {
        libc::MPOL_DEFAULT => "default",
        libc::MPOL_PREFERRED => "preferred",
        libc::MPOL_BIND => "bind",
        libc::MPOL_INTERLEAVE => "interleave",
        libc::MPOL_LOCAL => "local",
        5 => "preferred-many",
        6 => "weighted-interleave",
        _ => "unknown",
    };
    Ok(Policy {
        mode,
        nodes: (0..NODE_LIMIT).filter(|node| (mask[*node as usize / 64] >> (node % 64)) & 1 == 1).collect(),
    })
}

/// The node the page at this address is on; `None` while no page is there. Nothing is moved.
///
/// # Errors
/// The kernel's: `ENOSYS` without NUMA support.
pub fn node_of(address: *const u8) -> io::Result<Option<u32>> {
    let pages = [address];
    let mut status = [-1 as libc::c_int];
    let query = std::ptr::null::<libc::c_int>();
    // SAFETY: with a null node list the kernel only looks up one address and writes one int to `status`; both
    // arrays have one element and live through the call. The address is never dereferenced in this process.
    let answer = unsafe {
        libc::syscall(libc::SYS_move_pages, 0, 1 as libc::c_ulong, pages.as_ptr(), query, status.as_mut_ptr(), 0)
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u32::try_from(status[0]).ok())
}
