//! A ring of pointers in memory, and the loop that follows it.
#![allow(unsafe_code, reason = "following raw pointers is what is measured")]

use crate::error::ProbeError;
use crate::memory::permutation::LINE;
use crate::system::mapping::Mapping;

/// Loads written out in the loop, so that its counter does not show in the figure.
pub const UNROLL: u64 = 16;

/// A mapping holding one closed ring of pointers, and the place where the next load starts.
#[derive(Debug)]
pub struct Ring {
    /// Keeps the memory of the pointers; never written again.
    _mapping: Mapping,
    position: *const usize,
    places: u64,
}

// SAFETY: the pointer goes into the mapping, which moves with it and is not shared.
unsafe impl Send for Ring {}

impl Ring {
    /// Writes the ring: the line `order[i]` points to `order[i + 1]`, the last to the first.
    ///
    /// # Errors
    /// [`ProbeError::Limit`] when the order is empty or names a line outside the mapping.
    pub fn new(mut mapping: Mapping, order: &[u32]) -> Result<Self, ProbeError> {
        let base = mapping.start();
        let words = mapping.words_mut();
        let words_per_line = (LINE / 8) as usize;
        let lines = words.len() / words_per_line;
        let (Some(first), Some(largest)) = (order.first(), order.iter().max()) else {
            return Err(outside(0, lines));
        };
        if *largest as usize >= lines {
            return Err(outside(*largest, lines));
        }
        let address = |line: u32| base.addr() as u64 + u64::from(line) * LINE;
        for (index, line) in order.iter().enumerate() {
            let next = order.get(index + 1).unwrap_or(first);
            words[*line as usize * words_per_line] = address(*next);
        }
        let position = base.with_addr(address(*first) as usize).cast();
        let _ = base.expose_provenance();
        Ok(Self { _mapping: mapping, position, places: order.len() as u64 })
    }

    /// Places in the ring.
    pub fn places(&self) -> u64 {
        self.places
    }

    /// Follows the ring for `loads` loads, rounded up to a multiple of [`UNROLL`], each depending on the one before;
    /// returns how many were done. The next call goes on where this one stopped.
    #[inline(never)]
    pub fn follow(&mut self, loads: u64) -> u64 {
        let rounds = loads.div_ceil(UNROLL);
        let mut place = self.position;
        for _ in 0..rounds {
            for _ in 0..UNROLL {
                // SAFETY: `new` made every place of the ring hold the address of a place of the ring, inside the
                // mapping this value owns and never writes again; the start is one of them. Places are aligned to 64.
                place = std::ptr::with_exposed_provenance(unsafe { place.read_volatile() });
            }
        }
        self.position = std::hint::black_box(place);
        rounds * UNROLL
    }
}

fn outside(line: u32, lines: usize) -> ProbeError {
    ProbeError::Limit {
        what: "a line of the ring",
        value: line.to_string(),
        low: "0".to_owned(),
        high: lines.saturating_sub(1).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::permutation::{PAGE, Pattern, visits};
    use crate::random::Random;
    use crate::system::mapping::PageKind;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_ring_closes_after_all_places_and_not_before(pages in 1u64..65, seed: u64, page_pattern: bool) {
            let pattern = if page_pattern { Pattern::Page } else { Pattern::Groups };
            let bytes = pages * PAGE;
            let order = visits(pattern, bytes, &mut Random::new(seed)).unwrap();
            let mapping = Mapping::new(bytes as usize, PageKind::Small).unwrap();
            let base = mapping.start().addr();
            let mut ring = Ring::new(mapping, &order).unwrap();
            prop_assert_eq!(ring.places(), order.len() as u64);
            // UNROLL steps at a time lead through the order, and around its end.
            for step in 0..order.len() {
                let expected = order[step * UNROLL as usize % order.len()];
                prop_assert_eq!(ring.position.addr() - base, (u64::from(expected) * LINE) as usize);
                prop_assert_eq!(ring.follow(1), UNROLL);
            }
        }
    }

    #[test]
    fn a_line_outside_the_mapping_is_refused() {
        let mapping = || Mapping::new(4096, PageKind::Small).unwrap();
        assert!(Ring::new(mapping(), &[64]).is_err());
        assert!(Ring::new(mapping(), &[]).is_err());
        assert!(Ring::new(mapping(), &[63]).is_ok());
    }
}
