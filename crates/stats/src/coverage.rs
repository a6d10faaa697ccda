//! How often the intervals cover what they should, by simulation. The seeds are fixed; the bounds leave three standard
//! errors or more of the simulation itself.

#![allow(clippy::print_stdout)] // cargo test -p nearmetal-stats coverage -- --nocapture shows the measured shares

use oorandom::Rand32;

use crate::pair::Pair;
use crate::ratio::ratio_resampled;
use crate::{PILOT_PAIRS, Verdict, noise_floor, pairs_needed, verdict};

const EXPERIMENTS: u32 = 4000;
/// Fewer than a report uses; each end then moves a little more, and the coverage of many experiments hardly.
const RESAMPLES: u32 = 500;
const TRUE_RATIO: f64 = 1.4;

/// How the log ratios scatter around the true one, each with mean 0.
#[derive(Debug, Clone, Copy)]
enum Errors {
    Normal,
    /// Lognormal with this σ: slow runs are farther out than fast ones. The skewness is 0.95 for 0.3 and 1.75 for 0.5.
    Skewed(f64),
    /// Normal, one in ten five times as wide: now and then a run meets something else.
    Outliers,
}

/// A standard normal variable (Box and Muller 1958, Annals of Mathematical Statistics 29(2):610-611).
fn normal(random: &mut Rand32) -> f64 {
    let mut uniform = || (f64::from(random.rand_u32()) + 0.5) / 4_294_967_296.0;
    (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos()
}

/// Pairs whose two arms share a drift that is far larger than their difference, as those of a machine do.
fn experiment(random: &mut Rand32, n: usize, errors: Errors, spread: f64, true_ratio: f64) -> Vec<Pair> {
    let mut pair = || {
        let reference = 1e5 * normal(random).exp();
        let error = match errors {
            Errors::Normal => normal(random),
            Errors::Skewed(sigma) => (sigma * normal(random)).exp() - (sigma * sigma / 2.0).exp(),
            Errors::Outliers => normal(random) * if random.rand_range(0..10) == 0 { 5.0 } else { 1.0 },
        };
        Pair { subject: reference * true_ratio * (spread * error).exp(), reference }
    };
    (0..n).map(|_| pair()).collect()
}

/// The shares, in percent, of experiments whose recommended and whose bootstrap interval cover the true ratio.
fn coverage(n: usize, errors: Errors) -> (f64, f64) {
    coverage_of(EXPERIMENTS, RESAMPLES, n, errors)
}

fn coverage_of(experiments: u32, resamples: u32, n: usize, errors: Errors) -> (f64, f64) {
    let mut random = Rand32::new(20 + n as u64);
    let (mut recommended, mut bootstrap) = (0, 0);
    for seed in 0..experiments {
        let pairs = experiment(&mut random, n, errors, 0.1, TRUE_RATIO);
        let estimate = ratio_resampled(&pairs, 0.95, u64::from(seed), resamples).unwrap();
        recommended += u32::from(estimate.interval().contains(TRUE_RATIO));
        bootstrap += u32::from(estimate.bootstrap.contains(TRUE_RATIO));
    }
    let percent = |count: u32| f64::from(count) * 100.0 / f64::from(experiments);
    println!("{errors:?} n = {n}: recommended {:.2} %, bootstrap {:.2} %", percent(recommended), percent(bootstrap));
    (percent(recommended), percent(bootstrap))
}

#[test]
fn the_recommended_interval_covers_what_it_says() {
    for n in [6, 10, 20] {
        let (recommended, _) = coverage(n, Errors::Normal);
        assert!((93.0..=97.0).contains(&recommended), "n = {n}: {recommended} %");
    }
}

#[test]
fn mild_skew_costs_the_recommended_interval_little() {
    for n in [6, 10, 20] {
        let (recommended, bootstrap) = coverage(n, Errors::Skewed(0.3));
        assert!((92.0..=97.0).contains(&recommended), "n = {n}: {recommended} %");
        assert!(bootstrap < recommended, "n = {n}: {bootstrap} %, no reason to prefer it");
    }
}

#[test]
fn the_percentile_bootstrap_is_too_narrow_with_few_pairs() {
    let (_, six) = coverage(6, Errors::Normal);
    assert!((83.0..88.0).contains(&six), "n = 6: {six} %");
    let (_, twenty) = coverage(20, Errors::Normal);
    assert!((91.0..94.0).contains(&twenty), "n = 20: {twenty} %");
}

#[test]
fn neither_strong_skew_nor_outliers_are_a_reason_for_the_bootstrap() {
    for errors in [Errors::Skewed(0.5), Errors::Outliers] {
        let (recommended, bootstrap) = coverage(20, errors);
        assert!(recommended > 91.5 && recommended > bootstrap, "{errors:?}: {recommended} %, {bootstrap} %");
    }
}

#[test]
#[ignore = "a minute in release mode; prints the table in the documentation of `ratio`"]
fn the_table_of_the_documentation() {
    for n in [6, 10, 20, 50] {
        for errors in [Errors::Normal, Errors::Skewed(0.5), Errors::Outliers] {
            coverage_of(20_000, 2000, n, errors);
        }
    }
}

#[test]
fn pairs_of_a_pilot_may_count() {
    let mut random = Rand32::new(5);
    let (mut covered, mut total) = (0, 0);
    for seed in 0..EXPERIMENTS {
        let mut pairs = experiment(&mut random, PILOT_PAIRS, Errors::Normal, 0.1, TRUE_RATIO);
        let needed = pairs_needed(&pairs, 0.05, 0.95).unwrap();
        pairs.extend(experiment(&mut random, needed.n - PILOT_PAIRS, Errors::Normal, 0.1, TRUE_RATIO));
        let estimate = ratio_resampled(&pairs, 0.95, u64::from(seed), 2).unwrap();
        covered += u32::from(estimate.interval().contains(TRUE_RATIO));
        total += needed.n;
    }
    let percent = f64::from(covered) * 100.0 / f64::from(EXPERIMENTS);
    let pairs = total as f64 / f64::from(EXPERIMENTS);
    println!("pilot of {PILOT_PAIRS}, then {pairs:.1} pairs on average: {percent:.2} %");
    assert!((92.5..=97.0).contains(&percent), "{percent} %");
}

/// The share, in percent, of experiments of six pairs beside two A/A pairs that end with `wanted`.
fn verdicts(true_ratio: f64, wanted: &[Verdict]) -> f64 {
    let mut random = Rand32::new(9);
    let mut count = 0;
    for seed in 0..EXPERIMENTS {
        let noise = noise_floor(&experiment(&mut random, 2, Errors::Normal, 0.1, 1.0), 0.95).unwrap();
        let pairs = experiment(&mut random, 6, Errors::Normal, 0.1, true_ratio);
        let estimate = ratio_resampled(&pairs, 0.95, u64::from(seed), 2).unwrap();
        count += u32::from(wanted.contains(&verdict(&estimate, Some(&noise))));
    }
    f64::from(count) * 100.0 / f64::from(EXPERIMENTS)
}

#[test]
fn two_equal_pairs_are_enough_for_a_floor_that_neither_claims_nor_denies_too_much() {
    // Pairs that scatter by 10 %. With the t interval alone as the floor, 23 % of these gains of 50 % were claimed.
    let false_claims = verdicts(1.0, &[Verdict::Faster, Verdict::Slower]);
    assert!(false_claims < 2.5, "{false_claims} % of experiments without a difference claim one");
    let claims = verdicts(1.5, &[Verdict::Faster]);
    assert!(claims > 90.0, "{claims} % of experiments with a gain of 50 % claim it");
    println!("two A/A pairs: {false_claims:.2} % false claims, {claims:.2} % of gains of 50 % claimed");
}
