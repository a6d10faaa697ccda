//! `<memoryBacking>` and `<memtune>`: how guest memory is held. Page sizes are in `memory_backing.rs`.

use nearmetal_units::Bytes;
use roxmltree::Document;
use serde::{Deserialize, Serialize};

use super::memory;
use crate::error::DomainError;
use crate::tree;

/// How guest memory is held, as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryPolicyFacts {
    /// Whether it is kept out of same-page merging.
    pub no_share_pages: bool,
    /// Whether it is locked.
    pub locked: bool,
    /// `file`, `anonymous` or `memfd`.
    pub source: Option<String>,
    /// `shared` or `private`.
    pub access: Option<String>,
    /// `immediate` or `ondemand`.
    pub allocation: Option<String>,
    /// Threads that allocate it.
    pub allocation_threads: Option<u32>,
    /// Memory the whole QEMU process may use; `None` without a limit.
    pub hard_limit: Option<Bytes>,
}

/// From here on libvirt takes a limit as none (VIR_DOMAIN_MEMORY_PARAM_UNLIMITED, in KiB).
const UNLIMITED_KIB: u64 = 9_007_199_254_740_991;

pub(crate) fn read(document: &Document<'_>) -> Result<MemoryPolicyFacts, DomainError> {
    let hard_limit = match tree::find(document, &["memtune", "hard_limit"]) {
        None => None,
        Some(node) if tree::text(node).starts_with('-') => None,
        Some(node) => Some(memory::scaled(node, "<hard_limit>", &tree::text(node))?)
            .filter(|limit| limit.kib() < UNLIMITED_KIB && *limit != Bytes::ZERO),
    };
    let Some(backing) = tree::find(document, &["memoryBacking"]) else {
        return Ok(MemoryPolicyFacts { hard_limit, ..MemoryPolicyFacts::default() });
    };
    let of = |child: &str, name: &str| tree::child(backing, child).and_then(|child| tree::attribute(child, name));
    let allocation_threads = match tree::child(backing, "allocation") {
        Some(node) => tree::number(node, "threads")?,
        None => None,
    };
    Ok(MemoryPolicyFacts {
        no_share_pages: tree::child(backing, "nosharepages").is_some(),
        locked: tree::child(backing, "locked").is_some(),
        source: of("source", "type"),
        access: of("access", "mode"),
        allocation: of("allocation", "mode"),
        allocation_threads,
        hard_limit,
    })
}
