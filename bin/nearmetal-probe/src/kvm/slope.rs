//! The cost of one exit, from loops with none, one and two of them.

/// One round: nanoseconds per iteration with 0, 1 and 2 exits in the body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Nanoseconds per iteration, by exits in the body.
    pub per_iteration: [f64; 3],
}

impl Round {
    /// Nanoseconds per exit: the slope of the least-squares line through the three points, (y2 - y0) / 2. What the
    /// loop itself and the entry into the guest cost cancels.
    pub fn slope(&self) -> f64 {
        (self.per_iteration[2] - self.per_iteration[0]) / 2.0
    }

    /// How far the middle point lies from the line's ends, as a part of the slope. Near 0 when each exit costs the
    /// same, which is what makes the slope a cost.
    pub fn bend(&self) -> f64 {
        let middle = (self.per_iteration[0] + self.per_iteration[2]) / 2.0;
        (self.per_iteration[1] - middle) / self.slope()
    }
}

/// Raises a count until its iterations alone, without what one entry costs, last at least `target` nanoseconds, or
/// the count reaches `limit` (at least 2; so is the answer). Each step multiplies by at most 64, so that no run lasts
/// much longer than the target, however slow the guest is.
///
/// Every length is the shorter of two runs: a first entry can take milliseconds (page tables are built, code is
/// translated), and a single iteration taken for a slow guest would turn hardware into emulation.
///
/// # Errors
/// Those of `run`.
pub fn calibrate<E>(target: u64, limit: u64, mut run: impl FnMut(u64) -> Result<u64, E>) -> Result<u64, E> {
    let mut shorter = |count| Ok(run(count)?.min(run(count)?));
    let entry = shorter(1)?;
    let mut count = 2;
    loop {
        let elapsed = shorter(count)?;
        let alone = elapsed.saturating_sub(entry).max(1);
        if alone >= target || count >= limit {
            return Ok(count.min(limit));
        }
        // Half of the way that the last run promises.
        let promised = (target / alone / 2).clamp(2, 64);
        count = count.saturating_mul(promised).min(limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_straight_line_gives_its_slope() {
        let round = Round { per_iteration: [5.0, 1005.0, 2005.0] };
        assert_eq!((round.slope(), round.bend()), (1000.0, 0.0));
        assert_eq!(Round { per_iteration: [0.0, 1500.0, 2000.0] }.bend(), 0.5);
    }

    proptest! {
        /// Whatever one iteration costs, between a tenth of a nanosecond and ten milliseconds, and however long entries
        /// take, the first most of all: the iterations reach the target, in a few times the target, one iteration,
        /// and two dozen entries.
        #[test]
        fn calibration_keeps_to_its_time(cost_tenths in 1u64..100_000_000, entry in 0u64..500_000, first in 0u64..50_000_000) {
            let target = 2_000_000;
            let (mut total, mut runs) = (0, 0);
            let count = calibrate(target, u64::MAX, |count| {
                let cold = if runs == 0 { first } else { 0 };
                let elapsed = count.saturating_mul(cost_tenths) / 10 + entry + cold;
                runs += 1;
                total += elapsed;
                Ok::<u64, ()>(elapsed)
            }).unwrap();
            prop_assert!((count - 1) * cost_tenths / 10 + 1 >= target);
            let bound = first + 12 * target + 6 * (cost_tenths / 10) + runs * entry;
            prop_assert!(total <= bound && runs <= 40, "{} runs of {} ns in all, {} iterations", runs, total, count);
        }
    }

    #[test]
    fn a_clock_that_stands_still_ends_at_the_limit() {
        assert_eq!(calibrate(1_000_000, 5000, |_| Ok::<u64, ()>(0)), Ok(5000));
    }
}
