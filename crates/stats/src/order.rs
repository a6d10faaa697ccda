//! Which arm of a pair runs first.

use oorandom::Rand32;
use serde::{Deserialize, Serialize};

/// Its own stream of the generator, so that a seed used for the bootstrap as well tosses independent coins.
const COIN_STREAM: u64 = 0x636f_696e;

/// Which arm of a pair runs first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The subject, then the reference.
    SubjectFirst,
    /// The reference, then the subject.
    ReferenceFirst,
}

/// The order within each pair, by an independent fair coin for each: what a run leaves behind for the next (caches, heat,
/// a drive's state) then makes the estimate wider and not wrong (Fisher 1935, "The Design of Experiments", chapter 2).
///
/// A longer list begins with the shorter one of the same seed, so that a pilot can be continued.
pub fn coin_order(seed: u64, pairs: usize) -> Vec<Order> {
    let mut random = Rand32::new_inc(seed, COIN_STREAM);
    let mut toss = || if random.rand_u32() >> 31 == 0 { Order::SubjectFirst } else { Order::ReferenceFirst };
    (0..pairs).map(|_| toss()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject_first(orders: impl Iterator<Item = Order>) -> usize {
        orders.filter(|order| *order == Order::SubjectFirst).count()
    }

    #[test]
    fn a_seed_gives_the_same_order_again_and_a_longer_list_goes_on() {
        assert_eq!(coin_order(5, 40), coin_order(5, 40));
        assert_eq!(coin_order(5, 40)[..10], coin_order(5, 10));
        assert_ne!(coin_order(5, 40), coin_order(6, 40));
        assert_eq!(coin_order(5, 0), []);
    }

    #[test]
    fn the_coin_is_fair_within_a_seed_and_across_seeds() {
        // 10,000 tosses: four standard deviations are 200. Neighbouring seeds matter, since people use 1, 2, 3.
        assert!(subject_first(coin_order(1, 10_000).into_iter()).abs_diff(5_000) < 200);
        for position in 0..4 {
            let across = (0..10_000).map(|seed| coin_order(seed, position + 1)[position]);
            assert!(subject_first(across).abs_diff(5_000) < 200, "position {position}");
        }
    }

    #[test]
    fn tosses_do_not_depend_on_the_one_before() {
        let orders = coin_order(3, 10_001);
        let repeats = orders.windows(2).filter(|two| two[0] == two[1]).count();
        assert!(repeats.abs_diff(5_000) < 200, "{repeats}");
    }
}
