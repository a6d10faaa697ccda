//! Reading the counters while a workload runs.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nearmetal_host::{HostFs, PusChanged, same_pus};
use nearmetal_units::Bytes;

use super::neighbours::Threads;
use super::silicon::Silicon;
use super::snapshot::{Reading, requests_between};
pub(crate) use super::snapshot::{Requests, Target, distances};
use super::{Each, Snapshot, between};
use crate::load::FioJob;
use crate::metric::Metric;

/// The part of a sample that is counted, from the moment its command is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Middle {
    /// When counting begins.
    pub(crate) begins: Duration,
    /// When it ends.
    pub(crate) ends: Duration,
}

impl Middle {
    /// The middle of a job: from three tenths to eight tenths of its measured seconds. fio takes a moment to start, more of
    /// it in a guest, so that everything is later by up to three tenths on one side.
    pub(crate) fn of(job: &FioJob) -> Self {
        let (ramp, seconds) = (Duration::from_secs(job.ramp_seconds.into()), Duration::from_secs(job.seconds.into()));
        Self::after(ramp, seconds)
    }

    /// The middle of `seconds` that begin after `ramp`.
    pub(crate) fn after(ramp: Duration, seconds: Duration) -> Self {
        Self { begins: ramp + seconds * 3 / 10, ends: ramp + seconds * 8 / 10 }
    }
}

/// What was counted beside a workload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    pair: Option<(Snapshot, Snapshot)>,
    /// Of the requests, where all have one.
    size: Option<Bytes>,
    /// Who else ran on its PUs.
    neighbours: Option<String>,
}

impl Watched {
    /// Who else ran on the sample's own PUs meanwhile, in words; `None`: nobody that was seen.
    pub(crate) fn neighbours(&self) -> Option<&str> {
        self.neighbours.as_deref()
    }

    /// Whether the same PUs were online all the time.
    ///
    /// # Errors
    /// One came or went.
    pub(crate) fn same_pus(&self) -> Result<(), PusChanged> {
        let Some((before, after)) = &self.pair else { return Ok(()) };
        same_pus(before.online.as_ref(), after.online.as_ref())
    }

    /// The costs of each of what was done at this rate a second, and what could not be read.
    pub(crate) fn costs(&self, rate: f64, each: Each) -> (Vec<Metric>, Vec<String>) {
        let Some((before, after)) = &self.pair else { return (Vec::new(), Vec::new()) };
        let unknown = after.unknown.iter().map(|what| format!("not counted: {what}"));
        let requests = self.size.and_then(|size| requests_between(before, after, size));
        (between(before, after, (rate, requests), each), unknown.collect())
    }
}

#[cfg(test)]
impl Watched {
    /// As if these counters had gone up by so much within two seconds, and one could not be read.
    pub(crate) fn of_two_seconds(counters: &[(super::Cost, &str, u64)]) -> Self {
        let at = |seconds: u64, counts: bool| Snapshot {
            taken: Duration::from_secs(seconds),
            counted: Duration::from_secs(seconds),
            counters: counters
                .iter()
                .map(|(cost, name, value)| ((*cost, (*name).to_owned()), if counts { *value } else { 0 }))
                .collect(),
            unknown: vec!["what a test leaves out".to_owned()],
            ..Snapshot::default()
        };
        Self { pair: Some((at(1, false), at(3, true))), ..Self::default() }
    }
}

/// Runs a workload, and counts in its middle. A workload that ends before is not counted: that is no failure of its own.
///
/// Only the machine itself is watched; a fixture stands still.
pub(crate) fn watched<T>(
    fs: &HostFs,
    target: &Target,
    middle: Option<Middle>,
    workload: impl FnOnce() -> T,
) -> (T, Watched) {
    let Some(middle) = middle.filter(|_| fs.is_live()) else { return (workload(), Watched::default()) };
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let counting = scope.spawn(move || {
            let began = Instant::now();
            let over = |wait| is_done.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            // Reading all threads takes long, and is not to make the counted part shorter.
            if over(middle.begins / 2) {
                return None;
            }
            let earlier = Threads::read(fs);
            if over(middle.begins.saturating_sub(began.elapsed())) {
                return None;
            }
            let mut silicon = Silicon::open(fs, target);
            let before = Snapshot::take(fs, target, &mut silicon, Reading::First);
            if over(middle.ends.saturating_sub(middle.begins)) {
                return None;
            }
            let after = Snapshot::take(fs, target, &mut silicon, Reading::Second);
            let neighbours = Threads::read(fs).neighbours(&earlier, fs, target, std::process::id());
            Some((before, after, neighbours))
        });
        let result = workload();
        drop(done);
        let size = target.requests.as_ref().map(|requests| requests.size);
        let watched = match counting.join().unwrap_or_default() {
            Some((before, after, neighbours)) => Watched { pair: Some((before, after)), size, neighbours },
            None => Watched { size, ..Watched::default() },
        };
        (result, watched)
    })
}

#[cfg(test)]
mod tests {
    use nearmetal_host::MemoryTree;

    use super::*;

    #[test]
    fn the_middle_lies_within_the_measured_seconds() {
        let middle = Middle::of(&FioJob::first_seed(Bytes::from_kib(4), 10, 2));
        assert_eq!((middle.begins, middle.ends), (Duration::from_secs(5), Duration::from_secs(10)));
    }

    #[test]
    fn a_fixture_is_not_watched() {
        let fs = HostFs::of_tree(MemoryTree::new(), "nothing");
        let middle = Middle { begins: Duration::ZERO, ends: Duration::ZERO };
        let (result, watched) = watched(&fs, &Target::default(), Some(middle), || 7);
        assert_eq!((result, watched.costs(100.0, Each::Io).0.len()), (7, 0));
    }
}
