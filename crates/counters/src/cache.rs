//! A cache that is only modelled, so that accesses that would have reached memory are told from those that would not.

/// Bytes of a line, as on every x86 processor.
const LINE: u64 = 64;
/// Lines of a set.
const WAYS: usize = 8;

/// A cache of 64-byte lines with 8 ways, which drops the line that was used longest ago. Of one PU, and for data alone; it
/// neither prefetches nor hears of other PUs' writes, so its misses are fewer than silicon's where PUs share what they write.
///
/// One set in [`Cache::SAMPLED`] is modelled, and its misses stand for those of the others (set sampling: Kessler, Hill and
/// Wood 1994). Which sets is told by the part of an address that lies within a page, so an access of another set needs no
/// translation.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Lines of each set that is modelled, the latest first; 0: empty.
    lines: Vec<[u64; WAYS]>,
}

impl Cache {
    /// Of so many sets one is modelled.
    pub const SAMPLED: u64 = 16;

    /// A cache of this size in bytes; at least 16 sets, a power of two of them.
    pub fn new(bytes: u64) -> Self {
        let sets = (bytes / LINE / WAYS as u64).max(Self::SAMPLED);
        // The power of two below, so that the size is never more than was stated.
        let sets = 1_u64 << sets.ilog2();
        Self { lines: vec![[0; WAYS]; usize::try_from(sets / Self::SAMPLED).unwrap_or(1)] }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * Self::SAMPLED * WAYS as u64 * LINE
    }

    /// Whether an address, virtual or physical, is of a set that is modelled.
    pub fn is_modelled(address: u64) -> bool {
        (address / LINE) % Self::SAMPLED == Self::SAMPLED / 2
    }

    /// An access to a physical address of a set that is modelled; whether the cache would have missed it.
    pub fn misses(&mut self, address: u64) -> bool {
        // One more than the line's number, so that 0 is none.
        let line = address / LINE + 1;
        let at = (address / LINE / Self::SAMPLED) as usize & (self.lines.len() - 1);
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

    /// The misses that a pass over so many bytes has, in order.
    fn pass(cache: &mut Cache, bytes: u64) -> u64 {
        let modelled = (0..bytes / LINE).map(|line| line * LINE).filter(|address| Cache::is_modelled(*address));
        modelled.filter(|address| cache.misses(*address)).count() as u64 * Cache::SAMPLED
    }

    #[test]
    fn what_fits_is_missed_once_and_what_does_not_always() {
        let mut cache = Cache::new(64 << 10);
        assert_eq!(cache.bytes(), 64 << 10);
        assert_eq!((pass(&mut cache, 32 << 10), pass(&mut cache, 32 << 10)), (512, 0));
        pass(&mut cache, 128 << 10);
        assert_eq!(pass(&mut cache, 128 << 10), 2048, "a loop over twice its size, in order, finds nothing");
    }

    #[test]
    fn the_line_used_longest_ago_goes() {
        let mut cache = Cache::new(1);
        assert_eq!(cache.bytes(), 8192, "16 sets, of which one is modelled");
        let address = |number: u64| (number * Cache::SAMPLED + Cache::SAMPLED / 2) * LINE;
        assert!((0..8).all(|number| Cache::is_modelled(address(number)) && cache.misses(address(number))));
        assert!(!cache.misses(address(0)), "the first is used again");
        assert!(cache.misses(address(8)), "in the place of the second");
        assert!(!cache.misses(address(0)) && cache.misses(address(1)));
    }

    #[test]
    fn its_size_is_never_more_than_stated() {
        for bytes in [0, 1, 511, 10_000, 48 << 10, 1 << 20] {
            assert!(Cache::new(bytes).bytes() <= bytes.max(8192), "{bytes}");
        }
    }

    #[test]
    fn the_sets_that_are_modelled_are_told_within_a_page() {
        let within = |address: u64| Cache::is_modelled(address) == Cache::is_modelled(address % 4096);
        assert!((0..10_000).all(|line| within(line * LINE)));
    }
}
