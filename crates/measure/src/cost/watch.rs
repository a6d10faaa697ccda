//! Reading the counters while a workload runs.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nearmetal_host::{HostFs, PusChanged, same_pus};
use nearmetal_units::Bytes;

use super::neighbours::Threads;
use super::silicon::Silicon;
use super::snapshot::{self, Reading, requests_between};
pub(crate) use super::snapshot::{Requests, Target, distances};
use super::{Each, Snapshot, between};
use crate::barrier;
use crate::load::{FioJob, Window};
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

/// How many PUs were busy on average.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Busy {
    /// Of the whole machine, whoever kept them busy.
    pub(crate) machine: f64,
    /// With all threads of a guest's QEMU, by its process.
    pub(crate) guests: BTreeMap<u32, f64>,
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

    /// How many PUs were busy meanwhile; `None` where that was not counted.
    pub(crate) fn busy(&self) -> Option<Busy> {
        let (before, after) = self.pair.as_ref()?;
        let nanoseconds = after.taken.checked_sub(before.taken)?.as_nanos() as f64;
        let of = |before: u64, after: u64| Some(after.checked_sub(before)? as f64 / nanoseconds);
        let guest = |(pid, after): (&u32, &u64)| Some((*pid, of(*before.of_guests.get(pid)?, *after)?));
        (nanoseconds > 0.0).then_some(())?;
        Some(Busy {
            machine: of(before.busy?, after.busy?)?,
            guests: after.of_guests.iter().filter_map(guest).collect(),
        })
    }

    /// The part of the time between whose ends processors were counted, in ms of the host's clock since 1970.
    pub(crate) fn counted(&self) -> Option<Window> {
        let (before, after) = self.pair.as_ref()?;
        let (since, now) = (snapshot::now(), barrier::now() as f64 / 1e6);
        let at = |moment: Duration| now - since.saturating_sub(moment).as_secs_f64() * 1e3;
        Some(Window { began: at(before.counted), ended: at(after.counted) })
    }

    /// The costs of each of what was done at this rate a second, and what could not be read. `told`: how many the program says
    /// it did while processors were counted.
    pub(crate) fn costs(&self, rate: f64, told: Option<f64>, each: Each) -> (Vec<Metric>, Vec<String>) {
        let Some((before, after)) = &self.pair else { return (Vec::new(), Vec::new()) };
        let unknown = after.unknown.iter().map(|what| format!("not counted: {what}"));
        let seen = || self.size.and_then(|size| requests_between(before, after, size));
        let counted = after.counted.saturating_sub(before.counted).as_secs_f64();
        let done = told.map_or_else(|| (rate, seen()), |told| (told / counted, None));
        (between(before, after, done, each), unknown.collect())
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

    use super::super::Cost;
    use super::*;

    #[test]
    fn the_middle_lies_within_the_measured_seconds() {
        let middle = Middle::of(&FioJob::first_seed(Bytes::from_kib(4), 10, 2));
        assert_eq!((middle.begins, middle.ends), (Duration::from_secs(5), Duration::from_secs(10)));
    }

    #[test]
    fn busy_is_time_over_time_and_a_guest_that_came_in_between_has_none() {
        let at = |seconds, busy, guests: &[(u32, u64)]| Snapshot {
            taken: Duration::from_secs(seconds),
            busy,
            of_guests: guests.iter().copied().collect(),
            ..Snapshot::default()
        };
        let watched = |before, after| Watched { pair: Some((before, after)), ..Watched::default() };
        let (before, after) = (at(1, Some(0), &[(7, 0)]), at(3, Some(5_000_000_000), &[(7, 1_000_000_000), (8, 9)]));
        let expected = Busy { machine: 2.5, guests: [(7, 0.5)].into() };
        assert_eq!(watched(before.clone(), after).busy(), Some(expected));
        assert_eq!(watched(before.clone(), before.clone()).busy(), None, "no time went by");
        assert_eq!(watched(before, at(3, None, &[])).busy(), None);
        assert_eq!(Watched::default().busy(), None);
    }

    #[test]
    fn what_the_program_says_it_did_meanwhile_is_what_costs_are_divided_by() {
        let at = |seconds, instructions| Snapshot {
            counted: Duration::from_secs(seconds),
            taken: Duration::from_secs(seconds),
            counters: [((Cost::Work, "all".to_owned()), instructions)].into(),
            ..Snapshot::default()
        };
        let watched = Watched { pair: Some((at(10, 0), at(14, 8_000))), ..Watched::default() };
        let each = |told| watched.costs(100.0, told, Each::Transaction).0[0].value;
        assert_eq!(each(None), 20.0);
        assert_eq!(each(Some(10.0)), 800.0, "the machine stood still most of the time");
        let part = watched.counted().unwrap();
        assert!((part.ended - part.began - 4_000.0).abs() < 1.0, "{part:?}");
    }

    #[test]
    fn a_fixture_is_not_watched() {
        let fs = HostFs::of_tree(MemoryTree::new(), "nothing");
        let middle = Middle { begins: Duration::ZERO, ends: Duration::ZERO };
        let (result, watched) = watched(&fs, &Target::default(), Some(middle), || 7);
        assert_eq!((result, watched.costs(100.0, None, Each::Io).0.len()), (7, 0));
    }
}
