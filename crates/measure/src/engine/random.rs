//! Random order that can be had again.

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): four lines, reproducible from the printed seed on every platform.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = (self.next() % (last as u64 + 1)) as usize;
            items.swap(last, other);
        }
    }

    /// The seed of a load. fio takes a positive 32-bit seed on every version; sixteen tenants count up from it.
    pub(crate) fn load_seed(&mut self) -> u64 {
        (self.next() >> 34) | 1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_numbers_are_the_published_ones() {
        // The first of Vigna's splitmix64.c (https://prng.di.unimi.it) from seed 1234567. A printed seed has to give the same
        // order with every version, or an interrupted measurement would go on with another one.
        let mut random = SplitMix::new(1_234_567);
        let found: Vec<u64> = (0..5).map(|_| random.next()).collect();
        assert_eq!(
            found,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821
            ]
        );
    }

    #[test]
    fn every_order_of_three_comes_as_often_as_the_others() {
        let mut random = SplitMix::new(1);
        let mut seen: BTreeMap<[u8; 3], u32> = BTreeMap::new();
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *seen.entry(items).or_default() += 1;
        }
        // Six orders of 1000 each; the standard error is 29.
        assert_eq!(seen.len(), 6, "{seen:?}");
        assert!(seen.values().all(|count| (880..=1120).contains(count)), "{seen:?}");
    }

    #[test]
    fn a_seed_of_a_load_is_positive_and_leaves_room_for_sixteen_tenants() {
        // States whose next numbers are 0, the lowest that leaves a single bit, and the highest.
        for state in [0x61c8_8646_80b5_83eb, 0x7bff_73cf_6342_8291, 0x3162_8af6_7b21_31ab] {
            let seed = SplitMix::new(state).load_seed();
            assert!(seed > 0 && seed + 15 <= i32::MAX as u64, "{seed}");
        }
        let mut random = SplitMix::new(1);
        let seeds: std::collections::BTreeSet<u64> = (0..100).map(|_| random.load_seed()).collect();
        assert_eq!(seeds.len(), 100, "no two rounds ask for the same blocks");
    }
}
