//! What became of the requests of a run.

use std::collections::BTreeMap;

use crate::load::failure::{Failure, Kind};
use crate::load::histogram::Histogram;

/// A request that is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Its class.
    pub class: usize,
    /// When it was to begin, in ns since the run began: its time counts from here, whenever it really began.
    pub intended: u64,
    /// Whether it counts: it was to begin after the ramp and before the end.
    pub counts: bool,
}

/// Requests of one class that count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassTally {
    /// That were to begin.
    pub offered: u64,
    /// For which no connection was free at that moment.
    pub late: u64,
    /// That never began, since no connection became free in time.
    pub dropped: u64,
    /// That began and have no answer.
    pub failed: u64,
    /// From the moment they were to begin to the end of their answers.
    pub latency: Histogram,
    /// Answered within each of the limits.
    pub within: Vec<u64>,
}

/// Of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// By class.
    pub classes: Vec<ClassTally>,
    /// How late the generator saw that a request was due, whether a connection was free or not.
    pub lag: Histogram,
    /// Answers that came within the measured time, whenever their requests were to begin.
    pub finished: u64,
    /// Bytes of these answers.
    pub bytes: u64,
    /// Connections made anew after the run began, logins left out.
    pub reconnects: u64,
    /// Why requests that count have no answer, and the first reason of each kind.
    pub failures: BTreeMap<Kind, (u64, String)>,
    /// Why connections were lost that had no request, or could not be made again, and the first reason of each kind.
    pub lost: BTreeMap<Kind, (u64, String)>,
    /// The limits, ns.
    limits: Vec<u64>,
}

impl Tally {
    /// Of nothing yet.
    pub fn new(classes: usize, limits: &[u64]) -> Self {
        let class = ClassTally { within: vec![0; limits.len()], ..ClassTally::default() };
        Self {
            classes: vec![class; classes],
            lag: Histogram::default(),
            finished: 0,
            bytes: 0,
            reconnects: 0,
            failures: BTreeMap::new(),
            lost: BTreeMap::new(),
            limits: limits.to_vec(),
        }
    }

    fn class(&mut self, request: &Request) -> Option<&mut ClassTally> {
        self.classes.get_mut(request.class).filter(|_| request.counts)
    }

    /// A request is due.
    pub fn offer(&mut self, request: &Request) {
        self.class(request).into_iter().for_each(|class| class.offered += 1);
    }

    /// No connection was free for it.
    pub fn wait(&mut self, request: &Request) {
        self.class(request).into_iter().for_each(|class| class.late += 1);
    }

    /// It never began.
    pub fn drop(&mut self, request: &Request) {
        self.class(request).into_iter().for_each(|class| class.dropped += 1);
    }

    /// It was answered at this moment.
    pub fn answer(&mut self, request: &Request, now: u64) {
        let took = now.saturating_sub(request.intended);
        let limits = std::mem::take(&mut self.limits);
        if let Some(class) = self.class(request) {
            class.latency.record(took);
            class.within.iter_mut().zip(&limits).for_each(|(within, limit)| *within += u64::from(took <= *limit));
        }
        self.limits = limits;
    }

    /// It began and has no answer.
    pub fn fail(&mut self, request: &Request, failure: &Failure) {
        let Some(class) = self.class(request) else { return };
        class.failed += 1;
        self.failures.entry(failure.kind).or_insert_with(|| (0, failure.why.clone())).0 += 1;
    }

    /// A connection without a request was lost, or could not be made.
    pub fn lose(&mut self, failure: &Failure) {
        self.lost.entry(failure.kind).or_insert_with(|| (0, failure.why.clone())).0 += 1;
    }

    /// Adds what another thread counted.
    pub fn add(&mut self, other: &Self) {
        for (own, more) in self.classes.iter_mut().zip(&other.classes) {
            own.offered += more.offered;
            own.late += more.late;
            own.dropped += more.dropped;
            own.failed += more.failed;
            own.latency.add(&more.latency);
            own.within.iter_mut().zip(&more.within).for_each(|(own, more)| *own += more);
        }
        self.lag.add(&other.lag);
        self.finished += other.finished;
        self.bytes += other.bytes;
        self.reconnects += other.reconnects;
        for (own, more) in [(&mut self.failures, &other.failures), (&mut self.lost, &other.lost)] {
            for (kind, (count, why)) in more {
                own.entry(*kind).or_insert_with(|| (0, why.clone())).0 += count;
            }
        }
    }

    /// All classes as one.
    pub fn all(&self) -> ClassTally {
        let mut sum = Self::new(1, &self.limits);
        for class in &self.classes {
            let one = Self { classes: vec![class.clone()], ..Self::new(1, &self.limits) };
            sum.add(&one);
        }
        sum.classes.swap_remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn request(class: usize, intended: u64, counts: bool) -> Request {
        Request { class, intended, counts }
    }

    #[test]
    fn a_stall_is_seen_by_every_request_that_was_to_begin_in_it() {
        // One a millisecond; the server stands still from 1 s to 2 s and then answers at once. A generator that waits for
        // one answer before it asks again would have seen one slow request of 9001.
        let mut tally = Tally::new(1, &[SECOND / 10]);
        for millisecond in 0..10_000u64 {
            let intended = millisecond * 1_000_000;
            let request = request(0, intended, true);
            tally.offer(&request);
            let answered = if (SECOND..2 * SECOND).contains(&intended) { 2 * SECOND } else { intended + 1_000 };
            tally.answer(&request, answered);
        }
        let class = tally.all();
        let p95 = class.latency.percentile(9_500, 0).unwrap();
        assert!((499_000_000..505_000_000).contains(&p95), "half of the stalled tenth waited longer than 0.5 s: {p95}");
        assert!(class.latency.percentile(8_900, 0).unwrap() < 2_000, "nine tenths saw nothing");
        assert_eq!(class.within, [9_100], "those of the last 0.1 s of the stall still made it");
    }

    #[test]
    fn what_does_not_count_is_in_no_figure() {
        let mut tally = Tally::new(2, &[1]);
        let ramp = request(0, 5, false);
        tally.offer(&ramp);
        tally.wait(&ramp);
        tally.answer(&ramp, 9);
        tally.drop(&ramp);
        tally.fail(&ramp, &Failure::malformed("x"));
        assert_eq!(tally, Tally::new(2, &[1]));
    }

    #[test]
    fn threads_add_up_and_the_first_reason_of_a_kind_stays() {
        let (mut one, mut other) = (Tally::new(2, &[10]), Tally::new(2, &[10]));
        one.fail(&request(1, 0, true), &Failure::malformed("first"));
        other.fail(&request(0, 0, true), &Failure::malformed("second"));
        other.fail(&request(0, 0, true), &Failure::new(Kind::Timeout, "slow"));
        other.offer(&request(0, 0, true));
        other.answer(&request(0, 0, true), 10);
        one.add(&other);
        assert_eq!(one.failures[&Kind::Malformed], (2, "first".to_owned()));
        assert_eq!(one.failures[&Kind::Timeout].0, 1);
        let all = one.all();
        assert_eq!((all.offered, all.failed, all.latency.count(), &all.within[..]), (1, 3, 1, &[1][..]));
    }
}
