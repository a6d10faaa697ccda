//! One moment for all.
//!
//! Each side is told to begin when a clock shows a time (`nearmetal-probe at`), so that nobody waits for the last to be
//! told. A guest's clock is not the host's: kvm-clock stands still while it is paused. How far they are apart is asked
//! before each sample, and known to half the time the answer took.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nearmetal_hypervisor::{Hypervisor, HypervisorError, agent};

/// How often a clock is asked; the quickest answer is the best known.
const QUESTIONS: u32 = 3;

/// A clock beside the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// ns it is before the host's; negative: behind.
    pub(crate) by: i128,
    /// How much that may be wrong, ns.
    pub(crate) give_or_take: u64,
}

impl Ahead {
    /// The host's own clock.
    pub(crate) const HOST: Self = Self { by: 0, give_or_take: 0 };

    /// Asks a guest that runs.
    pub(crate) fn of_guest(hypervisor: &mut dyn Hypervisor, guest: &str) -> Result<Self, HypervisorError> {
        let mut best: Option<Self> = None;
        for _ in 0..QUESTIONS {
            let asked = now();
            let told = agent::clock(hypervisor, guest)?;
            let one = Self::between(asked, i128::from(told), now());
            if best.is_none_or(|best| one.give_or_take < best.give_or_take) {
                best = Some(one);
            }
        }
        Ok(best.unwrap_or(Self::HOST))
    }

    /// From one question: the guest's clock was read somewhere between the two readings of the host's (Cristian 1989,
    /// "Probabilistic clock synchronization", Distributed Computing 3).
    fn between(asked: i128, told: i128, answered: i128) -> Self {
        let middle = asked + (answered - asked) / 2;
        Self { by: told - middle, give_or_take: ((answered - asked).max(0) / 2) as u64 }
    }

    /// In ms.
    pub(crate) fn milliseconds(self) -> f64 {
        self.by as f64 / 1e6
    }
}

/// The host's clock: ns since 1970.
pub(crate) fn now() -> i128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128)
}

/// The words before a command that make it wait for a moment of the host's clock, on another clock; `stamp` has its times printed behind its output.
pub(crate) fn waiting(probe: &str, moment: i128, clock: Ahead, stamp: bool, command: &[String]) -> Vec<String> {
    let there = (moment + clock.by).max(0);
    let mut words = vec![probe.to_owned(), "at".to_owned(), "--nanoseconds".to_owned(), there.to_string()];
    words.extend(stamp.then(|| "--stamp".to_owned()));
    words.push("--".to_owned());
    words.extend(command.iter().cloned());
    words
}

/// How long after now everybody has been told: a fixed part for the start of a process, and one for each that is told. A guest
/// that was booted a moment ago takes longest to start its first process.
pub(crate) fn lead(members: usize) -> Duration {
    Duration::from_millis(1500) + Duration::from_secs(1) * members as u32
}

/// The same where all are processes of the host, which no agent has to be told of.
pub(crate) fn lead_on_the_host(processes: usize) -> Duration {
    Duration::from_secs(3) + Duration::from_millis(250) * processes as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_known_to_half_of_the_answers_time() {
        let ahead = Ahead::between(1_000_000, 5_000_000, 1_200_000);
        assert_eq!(ahead, Ahead { by: 3_900_000, give_or_take: 100_000 });
        assert_eq!(ahead.milliseconds(), 3.9);
        let words = waiting("probe", 10_000_000, ahead, false, &["fio".to_owned(), "x".to_owned()]);
        assert_eq!(words, ["probe", "at", "--nanoseconds", "13900000", "--", "fio", "x"]);
    }

    #[test]
    fn more_members_get_more_time() {
        assert!(lead(4) > lead(1) && lead(4) < Duration::from_secs(10));
    }
}
