//! Reading the counters while a workload runs.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nearmetal_host::{HostFs, PusChanged, same_pus};
use nearmetal_load::{Each, Metric, Middle, Window};
use nearmetal_units::Bytes;

use super::neighbours::Threads;
use super::silicon::Silicon;
use super::snapshot::{self, Reading, moved, requests_between};
use super::target::Target;
use super::{CREDIBLE, Snapshot, between, is_credible};

/// How many PUs were busy on average.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Busy {
    /// Of the whole machine, whoever kept them busy.
    pub machine: f64,
    /// With all threads of a guest's QEMU, by its process.
    pub guests: BTreeMap<u32, f64>,
}

/// What was counted beside a workload.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    pair: Option<(Snapshot, Snapshot)>,
    /// Its requests, where all have one size.
    passing: Option<Passing>,
    /// Why nothing was counted.
    missed: Option<&'static str>,
    /// Who else ran on its PUs.
    neighbours: Option<String>,
}

impl Watched {
    /// Who else ran on the sample's own PUs meanwhile, in words; `None`: nobody that was seen.
    pub fn neighbours(&self) -> Option<&str> {
        self.neighbours.as_deref()
    }

    /// Whether the same PUs were online all the time.
    ///
    /// # Errors
    /// One came or went.
    pub fn same_pus(&self) -> Result<(), PusChanged> {
        let Some((before, after)) = &self.pair else { return Ok(()) };
        same_pus(before.online.as_ref(), after.online.as_ref())
    }

    /// How many PUs were busy meanwhile; `None` where that was not counted.
    pub fn busy(&self) -> Option<Busy> {
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
    pub fn counted(&self) -> Option<Window> {
        let (before, after) = self.pair.as_ref()?;
        let (since, now) = (snapshot::now(), snapshot::of_the_day().as_secs_f64() * 1e3);
        let at = |moment: Duration| now - since.saturating_sub(moment).as_secs_f64() * 1e3;
        Some(Window { began: at(before.counted), ended: at(after.counted) })
    }

    /// Whether its requests, done at this rate a second, were seen; `None`: it made none of one size.
    pub fn saw_requests(&self, rate: f64) -> Option<bool> {
        self.passing.as_ref().filter(|_| rate > 0.0).map(|passing| passing.are_seen(rate))
    }

    /// The costs of each of what was done at this rate a second, and what could not be read. `told`: how many the program says
    /// it did while processors were counted.
    pub fn costs(&self, rate: f64, told: Option<f64>, each: Each) -> (Vec<Metric>, Vec<String>) {
        let unknown = |why: String| (Vec::new(), vec![format!("its costs are not known: {why}")]);
        let Some((before, after)) = &self.pair else {
            return self.missed.map(|why| unknown(why.to_owned())).unwrap_or_default();
        };
        let counted = after.counted.saturating_sub(before.counted).as_secs_f64();
        let done = match (told, &self.passing) {
            (Some(told), _) => (told / counted, None),
            (None, None) => (rate, None),
            (None, Some(passing)) => match passing.seen(before, after, rate) {
                Ok(seen) => (rate, seen),
                Err(why) => return unknown(why),
            },
        };
        let notes = after.unknown.iter().map(|what| format!("not counted: {what}")).collect();
        (between(before, after, done, each), notes)
    }
}

/// Requests of one size on their way.
#[derive(Debug, Clone)]
struct Passing {
    size: Bytes,
    /// Whether they are a program's own. All of those pass the disk's driver; a guest's may go where the host does not see them.
    is_bare: bool,
    /// How many were seen from the command to the end.
    in_all: Option<f64>,
    /// Measured seconds.
    seconds: f64,
}

impl Passing {
    /// Whether they pass where they are seen, by how many were in all of the time.
    fn are_seen(&self, rate: f64) -> bool {
        self.is_bare || self.in_all.is_some_and(|all| all * CREDIBLE >= rate * self.seconds)
    }

    /// How many were seen between two readings; `None`: they go where nobody sees them.
    ///
    /// # Errors
    /// They pass where they are seen, and this was not the part of the time in which they were done.
    fn seen(&self, before: &Snapshot, after: &Snapshot, rate: f64) -> Result<Option<f64>, String> {
        let seen = requests_between(before.moved, after.moved, self.size);
        let promised = rate * after.counted.saturating_sub(before.counted).as_secs_f64();
        match seen {
            Some(seen) if is_credible(seen, promised) => Ok(Some(seen)),
            _ if !self.are_seen(rate) => Ok(None),
            None => Err("the counters of its disk cannot be read".to_owned()),
            Some(seen) => Err(format!(
                "{seen:.0} requests were seen while they were counted, and {promised:.0} were to be: {}",
                if seen < promised { "the program began late, or was done early" } else { "others use its disk" }
            )),
        }
    }
}

#[cfg(any(test, feature = "samples"))]
impl Watched {
    #[doc(hidden)]
    /// As if these counters had gone up by so much within two seconds, and one could not be read.
    pub fn of_two_seconds(counters: &[(super::Cost, &str, u64)]) -> Self {
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

/// All threads before the counted part.
enum Earlier<'scope> {
    Read(Threads),
    /// They are being read, while a program starts.
    Coming(std::thread::ScopedJoinHandle<'scope, Threads>),
}

impl Earlier<'_> {
    fn threads(self) -> Threads {
        match self {
            Self::Read(threads) => threads,
            Self::Coming(reading) => reading.join().unwrap_or_default(),
        }
    }
}

/// Bytes that are more than what others do on a disk beside a workload that has not begun: so many requests.
const BEGUN: u64 = 16;
/// Between two looks whether a workload has begun.
const LOOK: Duration = Duration::from_millis(50);

/// The workload is over.
const ENDED: &str = "it ended before they were counted; longer samples leave the time for it";
/// The same, and its disk stood still.
const UNSEEN: &str = "it ended, and none of its requests had been seen where they pass the host";

/// When the requests of a workload begin, from the moment its command is given; `None`: nobody sees that. A program that starts
/// on a machine with much to do takes seconds until its first, and what is counted before says nothing of them. `moved`: bytes
/// until now. `over` waits, and says whether the workload has ended. `until`: so long they are waited for.
fn first_request(
    mut moved: impl FnMut() -> Option<u64>,
    size: Bytes,
    until: Option<Duration>,
    mut over: impl FnMut(Duration) -> bool,
    began: impl Fn() -> Duration,
) -> Result<Option<Duration>, &'static str> {
    let Some(at_first) = moved() else { return Ok(None) };
    while until.is_none_or(|until| began() < until) {
        if over(LOOK) {
            return Err(if until.is_none() { UNSEEN } else { ENDED });
        }
        let Some(now) = moved() else { return Ok(None) };
        if now.saturating_sub(at_first) >= BEGUN * size.get() {
            return Ok(Some(began()));
        }
    }
    Ok(None)
}

/// Runs a workload, and counts in its middle: of one whose requests are seen, after its first. A workload that ends before is not
/// counted: that is no failure of its own. `lead`: how long several wait for each other. `are_unseen`: the requests of the same
/// guest were never seen, so they are waited for only until the middle would begin.
///
/// Only the machine itself is watched; a fixture stands still.
pub fn watched<T>(
    fs: &HostFs,
    target: &Target,
    middle: Option<Middle>,
    lead: Duration,
    are_unseen: bool,
    workload: impl FnOnce() -> T,
) -> (T, Watched) {
    let Some(middle) = middle.filter(|_| fs.is_live()) else { return (workload(), Watched::default()) };
    let is_bare = target.is_bare();
    let requests = target.requests.as_ref();
    let moved_now = || requests.and_then(|requests| moved(fs, target, requests));
    let at_first = moved_now();
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let counting = scope.spawn(move || {
            let began = Instant::now();
            let over = |wait| is_done.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            // Guests that wait for each other begin when they are told to.
            let (earlier, first) = match requests.filter(|_| is_bare || lead.is_zero()) {
                // Reading all threads takes long, and is not to make the counted part shorter: it is done while a program starts.
                Some(requests) => {
                    let earlier = scope.spawn(|| Threads::read(fs));
                    let bytes = || moved_now().map(|ways| ways.iter().sum());
                    let until = are_unseen.then_some(middle.begins);
                    let first = first_request(bytes, requests.size, until, over, || began.elapsed())?;
                    (Earlier::Coming(earlier), first.unwrap_or(lead))
                }
                None if over(lead + middle.begins / 2) => return Err(ENDED),
                None => (Earlier::Read(Threads::read(fs)), lead),
            };
            if over((first + middle.begins).saturating_sub(began.elapsed())) {
                return Err(ENDED);
            }
            let mut silicon = Silicon::open(fs, target);
            let before = Snapshot::take(fs, target, &mut silicon, Reading::First);
            if over(middle.rest(began.elapsed().saturating_sub(first))) {
                return Err(ENDED);
            }
            let after = Snapshot::take(fs, target, &mut silicon, Reading::Second);
            let neighbours = Threads::read(fs).neighbours(&earlier.threads(), fs, target, std::process::id());
            Ok((before, after, neighbours))
        });
        let result = workload();
        let at_last = moved_now();
        drop(done);
        let passing = requests.map(|requests| Passing {
            size: requests.size,
            is_bare,
            in_all: requests_between(at_first, at_last, requests.size),
            // Half of them are the middle.
            seconds: middle.ends.saturating_sub(middle.begins).as_secs_f64() * 2.0,
        });
        let watched = match counting.join().unwrap_or(Err("counting them failed")) {
            Ok((before, after, neighbours)) => {
                Watched { pair: Some((before, after)), passing, missed: None, neighbours }
            }
            Err(why) => Watched { missed: Some(why), passing, ..Watched::default() },
        };
        (result, watched)
    })
}

#[cfg(test)]
mod tests {
    use nearmetal_host::MemoryTree;
    use nearmetal_load::Cost;

    use super::*;

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
    fn counting_waits_for_the_first_requests_of_a_program_that_starts_slowly() {
        let begins = |moved: &[Option<u64>], until: Option<u32>, ends_after: u32| {
            let (mut moved, looks) = (moved.iter(), std::cell::Cell::new(0));
            let over = |_| {
                looks.set(looks.get() + 1);
                looks.get() > ends_after
            };
            let (clock, until) = (|| LOOK * looks.get(), until.map(|looks| LOOK * looks));
            first_request(|| *moved.next().unwrap_or(&Some(0)), Bytes::from_kib(4), until, over, clock)
        };
        let many = Some(1 << 20);
        // A superblock that is read beside it is not yet the workload.
        assert_eq!(begins(&[Some(0), Some(0), Some(4096), many], None, 9), Ok(Some(LOOK * 3)));
        assert_eq!(begins(&[Some(0), Some(0), Some(0), many], None, 2), Err(UNSEEN));
        assert_eq!(begins(&[Some(0), Some(0), many], Some(4), 1), Err(ENDED));
        assert_eq!(begins(&[Some(0), Some(0), many], Some(4), 9), Ok(Some(LOOK * 2)));
        assert_eq!(begins(&[Some(0)], Some(4), 9), Ok(None), "a guest's data may go another way");
        assert_eq!(begins(&[None, many], None, 9), Ok(None), "disks that do not tell");
    }

    #[test]
    fn costs_of_a_part_in_which_the_requests_were_not_done_are_not_known() {
        let at = |seconds, moved: Option<u64>, work| Snapshot {
            counted: Duration::from_secs(seconds),
            taken: Duration::from_secs(seconds),
            moved: moved.map(|moved| [0, moved]),
            counters: [((Cost::Work, "all".to_owned()), work)].into(),
            ..Snapshot::default()
        };
        // 100 requests a second for 4 s, of which 2 are counted.
        let costs = |seen: Option<u64>, is_bare, in_all| {
            let pair = Some((at(1, seen.map(|_| 0), 0), at(3, seen.map(|seen| seen * 4096), 1_800)));
            let passing = Some(Passing { size: Bytes::from_kib(4), is_bare, in_all, seconds: 4.0 });
            let (costs, notes) = Watched { pair, passing, ..Watched::default() }.costs(100.0, None, Each::Io);
            costs.first().map(|cost| cost.value).ok_or_else(|| notes.concat())
        };
        assert_eq!(costs(Some(180), true, None), Ok(10.0));
        assert_eq!(costs(Some(20), false, Some(30.0)), Ok(9.0), "they go another way");
        for (is_bare, in_all) in [(true, None), (false, Some(390.0))] {
            let late = costs(Some(20), is_bare, in_all).unwrap_err();
            assert!(late.contains("20 requests") && late.contains("200 were to be: the program began late"), "{late}");
        }
        assert!(costs(Some(900), true, None).unwrap_err().contains("others use its disk"));
        assert!(costs(None, true, None).unwrap_err().contains("cannot be read"));
        let missed = Watched { missed: Some(ENDED), ..Watched::default() }.costs(100.0, None, Each::Io);
        assert!(missed.0.is_empty() && missed.1[0].contains("it ended before"));
    }

    #[test]
    fn a_fixture_is_not_watched() {
        let fs = HostFs::of_tree(MemoryTree::new(), "nothing");
        let middle = Middle { begins: Duration::ZERO, ends: Duration::ZERO };
        let (result, watched) = watched(&fs, &Target::default(), Some(middle), Duration::ZERO, false, || 7);
        assert_eq!((result, watched.costs(100.0, None, Each::Io).0.len()), (7, 0));
    }
}
