//! Orders in which a pointer chase visits memory: single cycles, random enough that no prefetcher follows.

use serde::Serialize;

use crate::error::ProbeError;
use crate::random::Random;

/// Bytes of a cache line of x86.
pub const LINE: u64 = 64;
/// Bytes between two places of the group pattern. Wider than a line, so that next-line and adjacent-line prefetch
/// (64 and 128 bytes) bring in nothing that is visited (multichase's default stride).
pub const STRIDE: u64 = 256;
/// Bytes of a page as the patterns count them, whatever page size backs the buffer.
pub const PAGE: u64 = 4096;
/// Pages in a group (multichase's default).
pub const GROUP_PAGES: u64 = 64;

/// How the chase walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Random inside groups of 64 pages (256 KiB), groups in random order: one TLB miss serves many loads.
    Groups,
    /// One place per 4 KiB page, pages in random order: every load needs another translation.
    Page,
}

/// The line numbers (64-byte units from the start of the buffer) in the order visited; after the last comes the
/// first. Each slot (256 bytes for `groups`, a page for `page`) is visited once, at a line of its own drawn at
/// random, so that the places do not all fall into the same cache sets.
///
/// `bytes` is at least one page and at most 2^38 bytes (line numbers are 32 bits).
///
/// # Errors
/// There is no memory for so many numbers, of 4 bytes each.
pub fn visits(pattern: Pattern, bytes: u64, random: &mut Random) -> Result<Vec<u32>, ProbeError> {
    let slot_bytes = slot_bytes(pattern);
    let lines_per_slot = (slot_bytes / LINE) as u32;
    let slots = u32::try_from(bytes / slot_bytes).unwrap_or(0);
    let slots_per_group = match pattern {
        Pattern::Groups => (GROUP_PAGES * PAGE / STRIDE) as u32,
        Pattern::Page => slots.max(1),
    };
    let mut groups: Vec<u32> = (0..slots.div_ceil(slots_per_group)).collect();
    random.shuffle(&mut groups);
    let mut order = Vec::new();
    // Beside a buffer of this size there may be no more room, and a process that finds none ends without a word.
    order.try_reserve_exact(slots as usize).map_err(|_| {
        let action = format!("give {} bytes for the order of a walk", u64::from(slots) * 4);
        ProbeError::kernel(action, std::io::ErrorKind::OutOfMemory)
    })?;
    for group in groups {
        let first = group * slots_per_group;
        let start = order.len();
        order.extend(first..slots.min(first + slots_per_group));
        random.shuffle(&mut order[start..]);
    }
    for slot in &mut order {
        *slot = *slot * lines_per_slot + random.below(lines_per_slot);
    }
    Ok(order)
}

/// Bytes of which one line is visited.
pub fn slot_bytes(pattern: Pattern) -> u64 {
    match pattern {
        Pattern::Groups => STRIDE,
        Pattern::Page => PAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_group_pattern_finishes_a_group_before_the_next() {
        let order = visits(Pattern::Groups, 8 * GROUP_PAGES * PAGE, &mut Random::new(1)).unwrap();
        let group = |line: &u32| u64::from(*line) * LINE / (GROUP_PAGES * PAGE);
        let mut groups: Vec<u64> = order.iter().map(group).collect();
        groups.dedup();
        assert_eq!(groups.len(), 8);
        assert_ne!(groups, (0..8).collect::<Vec<_>>(), "groups are shuffled too");
    }

    #[test]
    fn the_page_pattern_uses_many_line_offsets() {
        let order = visits(Pattern::Page, 4096 * PAGE, &mut Random::new(1)).unwrap();
        let offsets: std::collections::BTreeSet<u32> = order.iter().map(|line| line % 64).collect();
        assert_eq!(offsets.len(), 64);
    }

    #[test]
    fn the_same_seed_gives_the_same_walk() {
        let walk = |seed| visits(Pattern::Page, 64 * PAGE, &mut Random::new(seed)).unwrap();
        assert_eq!(walk(5), walk(5));
        assert_ne!(walk(5), walk(6));
    }

    proptest! {
        #[test]
        fn every_slot_is_visited_once(pages in 1u64..700, seed: u64, page_pattern: bool) {
            let pattern = if page_pattern { Pattern::Page } else { Pattern::Groups };
            let slot_lines = (slot_bytes(pattern) / LINE) as u32;
            let order = visits(pattern, pages * PAGE, &mut Random::new(seed)).unwrap();
            let mut slots: Vec<u32> = order.iter().map(|line| line / slot_lines).collect();
            slots.sort_unstable();
            prop_assert_eq!(slots, (0..(pages * PAGE / slot_bytes(pattern)) as u32).collect::<Vec<_>>());
        }
    }
}
