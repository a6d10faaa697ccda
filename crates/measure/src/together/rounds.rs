//! Rounds of samples: which side of which number of members comes when.

use super::prepare::TogetherTerms;
use super::results::{Side, TogetherSample};
use super::sample::{Bench, Running};
use crate::bench::Event;
use crate::error::MeasureError;
use crate::experiment::GIVE_UP_AFTER;
use crate::schedule::SplitMix;

/// How often a sample that does not count is tried again before its pair is given up.
const TRIES: u32 = 2;

/// The order: rounds of all numbers of members are mixed, and a coin decides which side of each goes first.
fn order(counts: &[usize], pairs: u32, seed: u64) -> Vec<(usize, [Side; 2])> {
    let mut random = SplitMix::new(seed);
    let mut rounds: Vec<usize> = counts.iter().flat_map(|count| std::iter::repeat_n(*count, pairs as usize)).collect();
    random.shuffle(&mut rounds);
    let with_sides = rounds.into_iter().map(|count| {
        let mut sides = [Side::Bare, Side::Guests];
        random.shuffle(&mut sides);
        (count, sides)
    });
    with_sides.collect()
}

/// Runs all rounds, and gives their samples, those that do not count among them.
///
/// # Errors
/// Several samples in a row failed.
pub(crate) fn rounds(
    terms: &TogetherTerms,
    members: &[Running],
    bench: &mut Bench<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<TogetherSample>, MeasureError> {
    let all = members.len();
    let counts: Vec<usize> = if terms.scaling { (1..=all).collect() } else { vec![all] };
    let order = order(&counts, terms.pairs, terms.conditions.seed);
    let total = order.len();
    let mut seeds = SplitMix::new(terms.conditions.seed.wrapping_add(1));
    let mut samples: Vec<TogetherSample> = Vec::new();
    let mut in_a_row = 0;
    for (round, (count, sides)) in order.into_iter().enumerate() {
        tell(Event::Stage(&format!("round {} of {total}: {count} at once", round + 1)));
        // fio takes a positive 32-bit seed on every version; each member has the next one, on both sides the same.
        let seed = (seeds.next() >> 34) | 1;
        'sides: for side in sides {
            for _ in 0..TRIES {
                let sample = bench.sample(&members[..count], side, round as u32, seed);
                let (is_good, ran) = (sample.thrown_away.is_none(), !sample.members.is_empty());
                in_a_row = if is_good || ran { 0 } else { in_a_row + 1 };
                let why = sample.thrown_away.clone();
                samples.push(sample);
                if is_good {
                    continue 'sides;
                }
                if in_a_row >= GIVE_UP_AFTER {
                    return Err(MeasureError::Unfit(format!(
                        "{GIVE_UP_AFTER} samples in a row failed, the last: {}",
                        why.unwrap_or_default()
                    )));
                }
            }
            // The other side alone would be no pair.
            break;
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_gets_its_pairs_and_no_side_always_goes_first() {
        let order = order(&[1, 2, 4], 20, 7);
        for count in [1, 2, 4] {
            assert_eq!(order.iter().filter(|(own, _)| *own == count).count(), 20);
        }
        let first = order.iter().filter(|(_, sides)| sides[0] == Side::Bare).count();
        assert!((15..=45).contains(&first), "{first} of 60");
        assert!(order[..20].iter().any(|(count, _)| *count != order[0].0), "they are mixed");
        assert_eq!(order, super::order(&[1, 2, 4], 20, 7));
    }
}
