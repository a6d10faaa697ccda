//! A cache that is only modelled, so that accesses that would have reached memory are told from those that would not.

/// Bytes of a line, as on every x86 processor.
const LINE: u64 = 64;
/// Lines of a set.
const WAYS: usize = 8;

/// A cache of 64-byte lines with 8 ways, which drops the line that was used longest ago. Of one PU, and for data alone; it
/// neither prefetches nor hears of other PUs' writes, so its misses are fewer than silicon's where PUs share what they write.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Lines of each set, the latest first; 0: empty.
    lines: Vec<[u64; WAYS]>,
}

impl Cache {
    /// A cache of this size in bytes; at least one set, a power of two of them.
    pub fn new(bytes: u64) -> Self {
        let sets = (bytes / LINE / WAYS as u64).max(1);
        // The power of two below, so that the size is never more than was stated.
        let sets = 1_u64 << sets.ilog2();
        Self { lines: vec![[0; WAYS]; usize::try_from(sets).unwrap_or(1)] }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * WAYS as u64 * LINE
    }

    /// An access to a physical address; whether the cache would have missed it.
    pub fn misses(&mut self, address: u64) -> bool {
        // One more than the line's number, so that 0 is none.
        let line = address / LINE + 1;
        let at = (line as usize) & (self.lines.len() - 1);
        let Some(set) = self.lines.get_mut(at) else { return true };
        let place = set.iter().position(|own| *own == line);
        set[..=place.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = line;
        place.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_missed_once_and_what_does_not_always() {
        let mut cache = Cache::new(64 << 10);
        assert_eq!(cache.bytes(), 64 << 10);
        let mut pass = |bytes: u64| (0..bytes / LINE).filter(|line| cache.misses(line * LINE)).count();
        assert_eq!((pass(32 << 10), pass(32 << 10)), (512, 0));
        pass(128 << 10);
        assert_eq!(pass(128 << 10), 2048, "a loop over twice its size, in order, finds nothing");
    }

    #[test]
    fn the_line_used_longest_ago_goes() {
        let mut cache = Cache::new(1);
        assert_eq!(cache.bytes(), 512);
        assert!((0..8).all(|line| cache.misses(line * LINE)));
        assert!(!cache.misses(0), "the first is used again");
        assert!(cache.misses(8 * LINE), "in the place of the second");
        assert!(!cache.misses(0) && cache.misses(LINE));
    }

    #[test]
    fn its_size_is_never_more_than_stated() {
        for bytes in [0, 1, 511, 1000, 48 << 10, 1 << 20] {
            assert!(Cache::new(bytes).bytes() <= bytes.max(512), "{bytes}");
        }
    }
}
