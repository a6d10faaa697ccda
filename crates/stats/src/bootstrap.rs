//! The percentile bootstrap of a mean.

use oorandom::Rand32;

use crate::error::StatsError;
use crate::sample::{mean, quantile_of_sorted};

/// Bootstrap percentile interval on the mean of `values`: the α/2 and 1−α/2 quantiles of the means of `resamples` sets
/// drawn with replacement (Efron and Tibshirani 1993, "An Introduction to the Bootstrap", chapter 13).
///
/// Half of the sets are drawn; the other half are their mirror images, the k-th smallest value taken for the k-th
/// largest (Hall 1989, "Antithetic resampling for the bootstrap", Biometrika 76(4):713-724). That lowers the noise of
/// the resampling, and makes the interval depend neither on the order of the pairs nor, but for its sign, on which arm
/// is the subject.
///
/// The generator is PCG-XSH-RR 64/32 (O'Neill 2014, "PCG", HMC-CS-2014-0905), the same on every machine.
pub(crate) fn percentile_interval(
    values: &[f64],
    confidence: f64,
    seed: u64,
    resamples: u32,
) -> Result<(f64, f64), StatsError> {
    let n = u32::try_from(values.len()).map_err(|_| StatsError::OutOfRange {
        what: "the number of pairs",
        value: values.len() as f64,
        low: 2.0,
        high: f64::from(u32::MAX),
    })?;
    let centre = mean(values);
    let mut deviations: Vec<f64> = values.iter().map(|value| value - centre).collect();
    deviations.sort_unstable_by(f64::total_cmp);

    let mut random = Rand32::new(seed);
    let mut means = Vec::with_capacity(resamples as usize + 1);
    for _ in 0..resamples.div_ceil(2) {
        let (mut drawn, mut mirrored) = (0.0, 0.0);
        for _ in 0..n {
            let index = random.rand_range(0..n) as usize;
            drawn += deviations[index];
            mirrored += deviations[deviations.len() - 1 - index];
        }
        means.push(drawn / f64::from(n));
        means.push(mirrored / f64::from(n));
    }
    means.sort_unstable_by(f64::total_cmp);

    let tail = (1.0 - confidence) / 2.0;
    Ok((centre + quantile_of_sorted(&means, tail), centre + quantile_of_sorted(&means, 1.0 - tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_values_give_the_exact_distribution() {
        // The means of two draws from {0, 1} are 0, ½, ½, 1: at 80 % the tails reach the ends, at 40 % they do not.
        let (low, high) = percentile_interval(&[0.0, 1.0], 0.8, 1, 10_000).unwrap();
        assert_eq!((low, high), (0.0, 1.0));
        let (low, high) = percentile_interval(&[0.0, 1.0], 0.4, 1, 10_000).unwrap();
        assert_eq!((low, high), (0.5, 0.5));
    }

    #[test]
    fn many_values_give_the_normal_approximation() {
        // 1 to 100: the plug-in standard error is √((100²−1)/12)/10 = 2.8866; the means are normal to 1 %.
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        let (low, high) = percentile_interval(&values, 0.95, 1, 10_000).unwrap();
        assert!((50.5 - low - 1.96 * 2.8866).abs() < 0.12, "{low}");
        assert!((high - 50.5 - 1.96 * 2.8866).abs() < 0.12, "{high}");
    }

    #[test]
    fn the_stream_is_the_published_one() {
        // The demonstration program of pcg-random.org, pcg32-demo: seed 42, sequence 54.
        let mut random = Rand32::new_inc(42, 54);
        let found: Vec<u32> = (0..6).map(|_| random.rand_u32()).collect();
        assert_eq!(found, [0xa15c_02b7, 0x7b47_f409, 0xba1d_3330, 0x83d2_f293, 0xbfa4_784b, 0xcbed_606e]);
    }
}
