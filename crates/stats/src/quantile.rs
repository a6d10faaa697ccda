//! Quantiles of the distributions used.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// Above this many degrees of freedom the library's inverse loses digits (at a million only four are left), and the
/// expansion in powers of 1/freedom has ten.
const EXPANSION_FROM: f64 = 400.0;

/// The value that a Student's t variable with `freedom` degrees of freedom stays below with `probability`: the inverse
/// of the incomplete beta function, and for many degrees of freedom the first three terms after z of Abramowitz and
/// Stegun 1964, Handbook of Mathematical Functions, 26.7.5.
pub(crate) fn student_t(probability: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(distribution) if freedom < EXPANSION_FROM => distribution.inverse_cdf(probability),
        _ => {
            let z = standard_normal(probability);
            let first = (z.powi(3) + z) / 4.0;
            let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
            let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
            z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
        }
    }
}

/// The value that a standard normal variable stays below with `probability`.
pub(crate) fn standard_normal(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_equal_those_published() {
        // Student's t table of the NIST/SEMATECH e-Handbook, 1.3.6.7.2, which gives three decimals.
        let table = [
            (0.90, 1.0, 3.078),
            (0.95, 4.0, 2.132),
            (0.975, 1.0, 12.706),
            (0.975, 2.0, 4.303),
            (0.975, 5.0, 2.571),
            (0.975, 9.0, 2.262),
            (0.975, 19.0, 2.093),
            (0.975, 30.0, 2.042),
            (0.975, 100.0, 1.984),
            (0.99, 10.0, 2.764),
            (0.995, 5.0, 4.032),
            (0.995, 50.0, 2.678),
            (0.995, 1e12, 2.576),
        ];
        for (probability, freedom, expected) in table {
            let found = student_t(probability, freedom);
            assert!((found - expected).abs() <= 5e-4, "t({probability}; {freedom}) = {found}, published {expected}");
        }
        assert!((standard_normal(0.975) - 1.959_963_984_540_054).abs() < 1e-9);
    }

    #[test]
    fn quantiles_agree_with_closed_forms() {
        for confidence in [0.5, 0.8, 0.9, 0.95, 0.99, 0.999] {
            let probability = 0.5 + confidence / 2.0;
            let cauchy = (std::f64::consts::FRAC_PI_2 * confidence).tan();
            let two = confidence * (2.0 / (1.0 - confidence * confidence)).sqrt();
            assert!((student_t(probability, 1.0) / cauchy - 1.0).abs() < 1e-8, "one degree, {confidence}");
            assert!((student_t(probability, 2.0) / two - 1.0).abs() < 1e-8, "two degrees, {confidence}");
        }
    }

    #[test]
    fn the_expansion_has_ten_digits() {
        // mpmath 1.3 with 30 digits: the root of 1 − I(400/(400+t²); 200, ½)/2 = probability.
        for (probability, exact) in [(0.75, 0.675_103_584_240_748_5), (0.9, 1.283_671_599_570_304_4)] {
            let found = student_t(probability, EXPANSION_FROM);
            assert!((found - exact).abs() < 2e-11, "t({probability}; {EXPANSION_FROM}) = {found}, exactly {exact}");
        }
    }

    #[test]
    fn the_expansion_joins_the_library_without_a_step() {
        for probability in [0.75, 0.9, 0.975, 0.995, 0.9995] {
            let (below, above) =
                (student_t(probability, EXPANSION_FROM - 1e-6), student_t(probability, EXPANSION_FROM));
            assert!((below / above - 1.0).abs() < 1e-8, "{probability}: {below} {above}");
            let mut last = f64::INFINITY;
            for freedom in [3.0, 10.0, 100.0, 399.0, 401.0, 1e4, 1e9] {
                let value = student_t(probability, freedom);
                assert!(value < last, "falls as the degrees of freedom grow");
                last = value;
            }
        }
    }
}
