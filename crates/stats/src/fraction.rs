//! Two-level fractions: few runs from which the effect of each factor, and of pairs of them, can be told.
//!
//! Up to three factors run in full, four in 2^(4-1) = 8 runs (the fourth is the product of the other three), five to eight in
//! 16 runs with generators of three letters each. All are of resolution IV or better: no main effect is confounded with another
//! or with an interaction of two factors; interactions of two may be confounded with each other, and then both are named
//! (Box, Hunter and Hunter 2005, "Statistics for Experimenters", 2nd ed., chapter 6).

use crate::error::StatsError;
use crate::pair::Pair;

/// The most factors.
pub const MOST_FACTORS: usize = 8;

/// A fraction: for each run, whether each factor is at its other level. The first run has all factors at their first level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fraction {
    factors: usize,
    runs: Vec<Vec<bool>>,
}

/// What a contrast of a fraction is of: one factor or two, and the pairs of factors that the same runs cannot tell from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contrast {
    /// Factors, by their place: one, or two.
    pub of: Vec<usize>,
    /// Pairs of factors that have the same contrast.
    pub confounded: Vec<[usize; 2]>,
}

impl Fraction {
    /// The fraction of so many factors.
    ///
    /// # Errors
    /// More than [`MOST_FACTORS`].
    pub fn of(factors: usize) -> Result<Self, StatsError> {
        crate::error::within("factors", factors as f64, 0.0, MOST_FACTORS as f64)?;
        // Factors beyond the basic ones are products of three of them.
        let (basic, products): (usize, &[[usize; 3]]) = match factors {
            0..=3 => (factors, &[]),
            4 => (3, &[[0, 1, 2]]),
            _ => (4, &[[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]]),
        };
        let run = |number: usize| {
            let mut levels: Vec<bool> = (0..basic).map(|factor| number >> factor & 1 == 1).collect();
            let more = products.iter().take(factors - basic);
            let more: Vec<bool> = more.map(|[a, b, c]| levels[*a] ^ levels[*b] ^ levels[*c]).collect();
            levels.extend(more);
            levels
        };
        Ok(Self { factors, runs: (0..1_usize << basic).map(run).collect() })
    }

    /// The runs.
    pub fn runs(&self) -> &[Vec<bool>] {
        &self.runs
    }

    /// Every contrast: each factor, then each pair of factors that is told from the ones before.
    pub fn contrasts(&self) -> Vec<Contrast> {
        let mut contrasts: Vec<Contrast> =
            (0..self.factors).map(|factor| Contrast { of: vec![factor], confounded: Vec::new() }).collect();
        for one in 0..self.factors {
            for other in one + 1..self.factors {
                let same = |contrast: &&mut Contrast| contrast.of.len() == 2 && self.equal(&contrast.of, &[one, other]);
                match contrasts.iter_mut().find(same) {
                    Some(contrast) => contrast.confounded.push([one, other]),
                    None => contrasts.push(Contrast { of: vec![one, other], confounded: Vec::new() }),
                }
            }
        }
        contrasts
    }

    /// Whether a run is on the plus side of a contrast: the product of its factors' signs, the other level being plus.
    pub fn is_plus(&self, run: usize, of: &[usize]) -> bool {
        of.iter().filter(|factor| !self.runs[run][**factor]).count() % 2 == 0
    }

    /// What one round of all runs says of a contrast: the geometric means of its plus and of its minus side. For one factor
    /// their ratio is what its other level does of the first; for two it is above 1 if they help each other. `None` if a run has
    /// no value.
    pub fn sides(&self, values: &[Option<f64>], of: &[usize]) -> Option<Pair> {
        if values.len() != self.runs.len() {
            return None;
        }
        let mean = |plus: bool| {
            let own = (0..values.len()).filter(|run| self.is_plus(*run, of) == plus);
            let logs: Option<Vec<f64>> = own.map(|run| values[run].filter(|value| *value > 0.0).map(f64::ln)).collect();
            let logs = logs.filter(|logs| !logs.is_empty())?;
            Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
        };
        Some(Pair { subject: mean(true)?, reference: mean(false)? })
    }

    /// Whether two contrasts are the same in all runs, or opposite.
    fn equal(&self, one: &[usize], other: &[usize]) -> bool {
        let agree = (0..self.runs.len()).filter(|run| self.is_plus(*run, one) == self.is_plus(*run, other)).count();
        agree == 0 || agree == self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn four_factors_take_eight_runs_and_pairs_are_confounded_by_twos() {
        let fraction = Fraction::of(4).unwrap();
        assert_eq!(fraction.runs().len(), 8);
        assert_eq!(fraction.runs()[0], [false; 4], "the first run is the first level of all");
        let contrasts = fraction.contrasts();
        assert_eq!(contrasts.len(), 7, "4 factors, and 6 pairs in 3 contrasts");
        assert_eq!(contrasts[4], Contrast { of: vec![0, 1], confounded: vec![[2, 3]] });
        assert!(Fraction::of(9).is_err());
        assert_eq!(Fraction::of(0).unwrap().runs(), [Vec::<bool>::new()]);
    }

    proptest! {
        #[test]
        fn every_level_and_every_pair_of_levels_comes_as_often_as_the_others(factors in 1usize..=MOST_FACTORS) {
            let fraction = Fraction::of(factors).unwrap();
            let runs = fraction.runs();
            let mut seen = runs.to_vec();
            seen.sort();
            seen.dedup();
            prop_assert_eq!(seen.len(), runs.len(), "no run comes twice");
            prop_assert!(runs.iter().all(|run| run.len() == factors), "{:?}", runs);
            for one in 0..factors {
                prop_assert_eq!(runs.iter().filter(|run| run[one]).count() * 2, runs.len());
                for other in (0..factors).filter(|other| *other != one) {
                    for levels in [(false, false), (false, true), (true, false), (true, true)] {
                        let count = runs.iter().filter(|run| (run[one], run[other]) == levels).count();
                        prop_assert_eq!(count * 4, runs.len());
                    }
                    // Resolution IV: no factor is confounded with a pair.
                    for third in (other + 1..factors).filter(|third| *third != one) {
                        prop_assert!(!fraction.equal(&[one], &[other, third]), "{} = {} x {}", one, other, third);
                    }
                }
            }
        }

        #[test]
        fn effects_that_were_put_in_come_out(
            effects in prop::collection::vec(-0.5f64..0.5, 4),
            together in -0.3f64..0.3,
        ) {
            let fraction = Fraction::of(4).unwrap();
            let value = |run: &Vec<bool>| {
                let own: f64 = run.iter().zip(&effects).filter(|(is_other, _)| **is_other).map(|(_, effect)| effect).sum();
                // Half of it on each side of the contrast.
                let pair = if run[0] == run[1] { together / 2.0 } else { -together / 2.0 };
                Some((5.0 + own + pair).exp())
            };
            let values: Vec<Option<f64>> = fraction.runs().iter().map(value).collect();
            for (factor, effect) in effects.iter().enumerate() {
                let sides = fraction.sides(&values, &[factor]).unwrap();
                prop_assert!(((sides.subject / sides.reference).ln() - effect).abs() < 1e-9);
            }
            let sides = fraction.sides(&values, &[0, 1]).unwrap();
            prop_assert!(((sides.subject / sides.reference).ln() - together).abs() < 1e-9);
            let mut lost = values.clone();
            lost[3] = None;
            prop_assert_eq!(fraction.sides(&lost, &[0]), None);
            lost[3] = Some(0.0);
            prop_assert_eq!(fraction.sides(&lost, &[0]), None, "zero has no logarithm");
        }
    }
}
