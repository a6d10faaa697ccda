//! When requests come, and of which class: drawn from a seed before the run, so that no answer of the server changes it.

use crate::random::Random;

/// Requests that come one by one, each independent of all others (a Poisson process): the time between two is exponential.
#[derive(Debug, Clone)]
pub struct Arrivals {
    random: Random,
    mix: Mix,
    /// Mean time between two, ns.
    mean: f64,
    /// Of the last one, ns since the beginning.
    at: f64,
}

/// One request that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When, in ns since the beginning.
    pub at: u64,
    /// Its class, by number.
    pub class: usize,
}

impl Arrivals {
    /// As many a second on average; the same seed gives the same.
    pub fn new(seed: u64, per_second: f64, mix: Mix) -> Self {
        Self { random: Random::new(seed), mix, mean: 1e9 / per_second, at: 0.0 }
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.at -= unit(&mut self.random).ln() * self.mean;
        Some(Arrival { at: self.at as u64, class: self.mix.draw(&mut self.random) })
    }
}

/// A number above 0 and up to 1, of 53 bits.
fn unit(random: &mut Random) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// How often each class comes, in parts of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    /// Sums of the weights up to each class.
    sums: Vec<u32>,
}

impl Mix {
    /// Of these weights, of which at least one must be above 0; `None` otherwise, or where they are too large together.
    pub fn new(weights: &[u32]) -> Option<Self> {
        let mut sum: u32 = 0;
        let mut sums = Vec::with_capacity(weights.len());
        for weight in weights {
            sum = sum.checked_add(*weight)?;
            sums.push(sum);
        }
        (sum > 0).then_some(Self { sums })
    }

    /// Draws a class.
    pub fn draw(&self, random: &mut Random) -> usize {
        let drawn = random.below(self.sums.last().copied().unwrap_or(1));
        self.sums.partition_point(|sum| *sum <= drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gaps_are_exponential_and_no_two_seeds_alike() {
        let mix = Mix::new(&[1]).unwrap();
        let of = |seed| Arrivals::new(seed, 1000.0, mix.clone()).take(100_000).map(|one| one.at).collect::<Vec<_>>();
        let (times, others) = (of(7), of(8));
        assert_eq!(times, of(7), "the same seed gives the same");
        assert_ne!(times, others);
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.02, "1000 a second are 1 ms apart: {mean}");
        // The standard deviation of an exponential time is its mean, and 1/e of all are longer than it.
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!((deviation / mean - 1.0).abs() < 0.03, "{deviation}");
        let longer = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((longer - (-1f64).exp()).abs() < 0.01, "{longer}");
    }

    #[test]
    fn a_mix_of_nothing_is_none() {
        assert_eq!(Mix::new(&[]), None);
        assert_eq!(Mix::new(&[0, 0]), None);
        assert_eq!(Mix::new(&[u32::MAX, 1]), None);
    }

    proptest! {
        #[test]
        fn a_class_comes_as_often_as_its_weight_says_and_never_without_one(
            weights in proptest::collection::vec(0u32..50, 1..8), seed in any::<u64>(),
        ) {
            let Some(mix) = Mix::new(&weights) else { return Ok(()) };
            let (mut random, mut counts) = (Random::new(seed), vec![0u32; weights.len()]);
            (0..20_000).for_each(|_| counts[mix.draw(&mut random)] += 1);
            let sum: u32 = weights.iter().sum();
            for (weight, count) in weights.iter().zip(counts) {
                let expected = 20_000.0 * f64::from(*weight) / f64::from(sum);
                prop_assert!((f64::from(count) - expected).abs() <= 5.0 * expected.sqrt() + 1.0, "{weight}: {count}");
                prop_assert!(*weight > 0 || count == 0);
            }
        }

        #[test]
        fn times_never_go_back(seed in any::<u64>(), rate in 0.1f64..1e6) {
            let times: Vec<u64> = Arrivals::new(seed, rate, Mix::new(&[1]).unwrap()).take(500).map(|one| one.at).collect();
            prop_assert!(times.is_sorted());
        }
    }
}
