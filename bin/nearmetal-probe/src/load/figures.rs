//! What a run prints.

use serde::Serialize;

use crate::load::failure::Kind;
use crate::load::histogram::Times;
use crate::load::tally::{ClassTally, Tally};

/// A run: what was asked, when, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Load {
    /// `http`, `imap` or `sql`.
    pub protocol: &'static str,
    /// Where the server answered.
    pub address: String,
    /// `open`: requests were due at their own moments. `closed`: each connection asked as soon as it had its answer.
    pub pace: &'static str,
    /// Requests a second that were asked for, on average; `None` in a closed loop.
    pub rate: Option<f64>,
    /// Seed of moments, classes and requests.
    pub seed: u64,
    /// Connections.
    pub connections: u64,
    /// Threads of the generator.
    pub threads: u64,
    /// Seconds before those that count.
    pub ramp_seconds: u64,
    /// Seconds that count.
    pub seconds: u64,
    /// How long after it was due a request could be without its answer, ms.
    pub timeout_ms: u64,
    /// When the part that counts began: ms since 1970 by the system's clock.
    pub began_ms: f64,
    /// When it ended.
    pub ended_ms: f64,
    /// Answers within the part that counts, whenever their requests were due.
    pub finished: u64,
    /// The same a second: what the server did.
    pub finished_per_second: f64,
    /// Bytes of these answers a second.
    pub bytes_per_second: f64,
    /// Connections that were lost and made anew.
    pub reconnects: u64,
    /// Requests of all classes.
    #[serde(flatten)]
    pub all: Figures,
    /// By class.
    pub classes: Vec<ClassFigures>,
    /// Why requests have no answer; kinds that did not occur are not listed.
    pub failures: Vec<FailureCount>,
    /// Why connections were lost that had no request, or could not be made again, after the run began.
    pub lost: Vec<FailureCount>,
    /// What is known of the generator itself.
    pub generator: Generator,
}

/// Requests that were due in the part that counts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// How many.
    pub offered: u64,
    /// That were answered, however late.
    pub answered: u64,
    /// For which no connection was free when they were due; their time counts all the same.
    pub late: u64,
    /// That never began, since no connection became free before the timeout.
    pub dropped: u64,
    /// That began and have no answer, or not the one that was asked for.
    pub failed: u64,
    /// From the moment they were due to the end of their answers; `None` in a closed loop, where it says nothing.
    pub latency: Option<Times>,
    /// How many were answered within each limit.
    pub within: Vec<Within>,
}

/// Requests answered within a limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Within {
    /// The limit, ms.
    pub limit_ms: u64,
    /// How many of those offered, exact.
    pub count: u64,
    /// The same as a part of those offered, from 0 to 1.
    pub share: f64,
}

/// One class.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassFigures {
    /// Its name.
    pub name: String,
    /// Its requests.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Failures of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailureCount {
    /// Kind.
    pub kind: Kind,
    /// How many.
    pub count: u64,
    /// The first one's reason.
    pub first: String,
}

/// The generator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Generator {
    /// How late it saw that requests were due; `None` in a closed loop, where none is due.
    pub lag: Option<Times>,
    /// The 99th percentile of that beyond which the run is no measurement, ms.
    pub most_lag_ms: u64,
    /// What it did a second against its own responder on this machine, in a closed loop; `None` if that was not measured.
    pub ceiling_per_second: Option<f64>,
}

/// The part of the offered requests that an open loop may have at most of the generator's ceiling.
pub const MOST_OF_CEILING: f64 = 0.5;

impl Figures {
    /// Of a class's tally, and the limits of its counts in ms. A closed loop offers what it does.
    pub(crate) fn new(tally: &ClassTally, limits: &[u64], is_open: bool) -> Self {
        let answered = tally.latency.count();
        let offered = if is_open { tally.offered } else { answered + tally.failed };
        let unanswered = offered.saturating_sub(answered);
        let within = |(limit_ms, count): (&u64, &u64)| Within {
            limit_ms: *limit_ms,
            count: *count,
            share: if offered == 0 { 0.0 } else { *count as f64 / offered as f64 },
        };
        Self {
            offered,
            answered,
            late: tally.late,
            dropped: tally.dropped,
            failed: tally.failed,
            latency: is_open.then(|| tally.latency.figures(unanswered)),
            within: if is_open { limits.iter().zip(&tally.within).map(within).collect() } else { Vec::new() },
        }
    }

    /// Of each class and of all.
    pub(crate) fn of(tally: &Tally, names: &[String], limits: &[u64], is_open: bool) -> (Self, Vec<ClassFigures>) {
        let class = |(name, class): (&String, &ClassTally)| ClassFigures {
            name: name.clone(),
            figures: Self::new(class, limits, is_open),
        };
        (Self::new(&tally.all(), limits, is_open), names.iter().zip(&tally.classes).map(class).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tally::Request;

    #[test]
    fn what_has_no_answer_counts_as_slower_than_any_limit() {
        let mut tally = Tally::new(1, &[10]);
        for number in 0..10 {
            let request = Request { class: 0, intended: 0, counts: true };
            tally.offer(&request);
            match number {
                0 => tally.drop(&request),
                _ => tally.answer(&request, number),
            }
        }
        let (all, classes) = Figures::of(&tally, &["get".to_owned()], &[7], true);
        assert_eq!((all.offered, all.answered, all.dropped), (10, 9, 1));
        assert_eq!(all.within, [Within { limit_ms: 7, count: 9, share: 0.9 }]);
        let times = all.latency.clone().unwrap();
        assert_eq!((times.p90, times.p95, times.unanswered), (Some(9), None, 1));
        assert_eq!((classes[0].name.as_str(), &classes[0].figures), ("get", &all));
        assert_eq!(Figures::of(&tally, &[], &[7], false).0.latency, None, "a closed loop has no such times");
    }
}
