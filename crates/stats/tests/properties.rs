//! What holds for any pairs.

use nearmetal_stats::{
    Interval, Pair, RatioEstimate, Sample, ShownRatio, Verdict, interval_text, noise_floor, ratio, verdict,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn pairs() -> impl Strategy<Value = Vec<Pair>> {
    let value = || (-12.0..12.0_f64).prop_map(f64::exp);
    let pair = (value(), value()).prop_map(|(subject, reference)| Pair { subject, reference });
    prop::collection::vec(pair, 2..30)
}

fn estimate(pairs: &[Pair]) -> RatioEstimate {
    ratio(pairs, 0.95, 42).expect("pairs above zero have a ratio")
}

fn close(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < 1e-9
}

fn intervals_close(one: &Interval, other: &Interval) -> bool {
    close(one.low, other.low) && close(one.high, other.high)
}

fn all_close(one: &RatioEstimate, other: &RatioEstimate) -> bool {
    close(one.ratio, other.ratio)
        && intervals_close(&one.student_t, &other.student_t)
        && intervals_close(&one.bootstrap, &other.bootstrap)
}

fn reciprocal(interval: &Interval) -> Interval {
    Interval { low: interval.high.recip(), high: interval.low.recip() }
}

/// The digits after the point of a figure as printed, and the figure that a reader takes from it.
fn read(text: &str) -> (usize, f64) {
    let digits = text.split('e').next().and_then(|mantissa| mantissa.split_once('.')).map_or(0, |(_, rest)| rest.len());
    (digits, text.parse().expect("a number is printed"))
}

proptest! {
    // A fixed seed: a failure is the same for everyone, and no file of regressions is needed.
    #![proptest_config(ProptestConfig {
        cases: 64,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn units_do_not_matter(pairs in pairs(), scale in 1e-9..1e9_f64) {
        let scaled: Vec<Pair> =
            pairs.iter().map(|pair| Pair { subject: pair.subject * scale, reference: pair.reference * scale }).collect();
        prop_assert!(all_close(&estimate(&pairs), &estimate(&scaled)));
    }

    #[test]
    fn swapped_arms_give_the_reciprocal(pairs in pairs()) {
        let swapped: Vec<Pair> =
            pairs.iter().map(|pair| Pair { subject: pair.reference, reference: pair.subject }).collect();
        let (one, other) = (estimate(&pairs), estimate(&swapped));
        prop_assert!(close(one.ratio, other.ratio.recip()));
        prop_assert!(intervals_close(&one.student_t, &reciprocal(&other.student_t)));
        prop_assert!(intervals_close(&one.bootstrap, &reciprocal(&other.bootstrap)));
        prop_assert_eq!(verdict(&one, None), verdict(&other, None).of_times());
    }

    #[test]
    fn intervals_contain_the_ratio_and_are_numbers(pairs in pairs()) {
        let estimate = estimate(&pairs);
        for interval in [&estimate.student_t, &estimate.bootstrap] {
            prop_assert!(interval.contains(estimate.ratio));
            prop_assert!(interval.low > 0.0 && interval.high.is_finite());
        }
    }

    #[test]
    fn the_order_of_pairs_does_not_matter(
        (pairs, shuffled) in pairs().prop_flat_map(|pairs| (Just(pairs.clone()), Just(pairs).prop_shuffle()))
    ) {
        prop_assert!(all_close(&estimate(&pairs), &estimate(&shuffled)));
    }

    #[test]
    fn more_confidence_is_wider(pairs in pairs()) {
        let (narrow, wide) = (ratio(&pairs, 0.8, 1).unwrap(), ratio(&pairs, 0.99, 1).unwrap());
        prop_assert!(wide.student_t.low <= narrow.student_t.low && narrow.student_t.high <= wide.student_t.high);
        prop_assert!(wide.bootstrap.low <= narrow.bootstrap.low && narrow.bootstrap.high <= wide.bootstrap.high);
    }

    #[test]
    fn noise_never_turns_a_verdict_round_nor_makes_a_claim(pairs in pairs(), equal in pairs()) {
        let estimate = estimate(&pairs);
        let noise = noise_floor(&equal, 0.95).unwrap();
        prop_assert!(noise.factor() >= 1.0 && noise.low <= noise.ratio && noise.ratio <= noise.high);
        let claim = verdict(&estimate, Some(&noise));
        if matches!(claim, Verdict::Faster | Verdict::Slower) {
            prop_assert_eq!(claim, verdict(&estimate, None));
        }
    }

    #[test]
    fn any_numbers_give_a_number_or_an_error(
        values in prop::collection::vec((any::<f64>(), any::<f64>()), 0..6), confidence in any::<f64>()
    ) {
        let pairs: Vec<Pair> = values.iter().map(|&(subject, reference)| Pair { subject, reference }).collect();
        for confidence in [0.95, confidence] {
            if let Ok(estimate) = ratio(&pairs, confidence, 1) {
                for interval in [&estimate.student_t, &estimate.bootstrap] {
                    prop_assert!(interval.contains(estimate.ratio) && interval.low > 0.0 && interval.high.is_finite());
                }
            }
        }
    }

    #[test]
    fn figures_shown_together_have_the_same_digits_and_keep_their_order(
        centre in -18.0..18.0_f64, below in 0.0..4.0_f64, above in 0.0..4.0_f64
    ) {
        let (low, middle, high) = ((centre - below).exp(), centre.exp(), (centre + above).exp());
        let shown = ShownRatio::new(middle, Some((low, high)));
        let interval = shown.interval.expect("an interval was given");
        let (low_text, high_text) = interval.split_once('–').expect("an interval has two ends");
        let texts = [low_text, shown.ratio.trim_end_matches('×'), high_text];
        let [low_read, middle_read, high_read] = texts.map(read);
        prop_assert_eq!((low_read.0, high_read.0), (middle_read.0, middle_read.0), "{:?}", texts);
        prop_assert!(low_read.1 <= middle_read.1 && middle_read.1 <= high_read.1, "{:?}", texts);
        for ((_, printed), figure) in [(low_read, low), (middle_read, middle), (high_read, high)] {
            prop_assert!((printed / figure - 1.0).abs() <= 0.051, "{} is printed as {}", figure, printed);
        }
        let alone = interval_text(low, high);
        let (low_text, high_text) = alone.split_once('–').expect("an interval has two ends");
        prop_assert_eq!(read(low_text).0, read(high_text).0, "{}", alone);
    }

    #[test]
    fn percentiles_rise_and_stay_within_the_sample(
        values in prop::collection::vec(-1e12..1e12_f64, 1..50), one in 0.0..100.0_f64, other in 0.0..100.0_f64
    ) {
        let sample = Sample::new(values).unwrap();
        let (low, high) = (sample.percentile(one.min(other)).unwrap(), sample.percentile(one.max(other)).unwrap());
        prop_assert!(sample.minimum() <= low && low <= high && high <= sample.maximum());
        prop_assert!(sample.minimum() <= sample.mean() && sample.mean() <= sample.maximum());
        prop_assert_eq!(sample.median(), sample.percentile(50.0).unwrap());
    }
}
