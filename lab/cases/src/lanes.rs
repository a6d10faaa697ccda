//! Lanes: where the machine has room, two cases run at a time, each in labs of its own.
//!
//! A lab of 12 emulated processors keeps little more than one of the host's busy (seen: 1.2), since most of what boots and starts
//! in it is a single thread. The first lane takes cases from the front, the second from the back, so each goes through its cases in an
//! order that needs few boots. Cases that share labs come first, then those with one of their own, then those that need the machine
//! for themselves.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::cases::{Body, Case, Verdict};
use crate::labs::{Labs, Lane, Shared};
use crate::record::{CaseRecord, Outcome, Record};
use crate::{Cli, context, say};

/// Memory of a host that has room for two shared labs: each may come to 10 GiB.
const ROOM_FOR_TWO: u64 = 20 << 30;

/// One run of cases.
pub struct Run<'c> {
    cli: &'c Cli,
    root: bool,
    start: Instant,
    state: Mutex<State<'c>>,
}

/// What the lanes share.
struct State<'c> {
    queue: VecDeque<&'c Case>,
    record: Record,
    begun: usize,
    left: Vec<(&'static str, f64)>,
}

/// What came of a run.
pub struct Done {
    /// All outcomes.
    pub record: Record,
    /// Cases that were begun.
    pub begun: usize,
    /// Cases that would not end in time, with the seconds they need.
    pub left: Vec<(&'static str, f64)>,
}

impl<'c> Run<'c> {
    /// Of these cases.
    pub fn new(cases: Vec<&'c Case>, cli: &'c Cli, record: Record) -> Self {
        let state = State { queue: cases.into(), record, begun: 0, left: Vec::new() };
        Self { cli, root: rustix::process::geteuid().is_root(), start: Instant::now(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State<'c>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs them: those that share labs, then those with one of their own, each in as many lanes as there is room for, and last those
    /// that have labs beside which there is none. `kept`: the shared labs that an earlier run left; `keep`: whether this one leaves its
    /// own.
    pub fn all(self, kept: Option<Labs>, keep: bool) -> anyhow::Result<Done> {
        let wanted = if keep { 1 } else { self.cli.lanes.unwrap_or_else(usual) };
        let mut first = Shared::left(Lane::First, kept);
        if self.root && wanted == 2 {
            // What a run that was killed left there is nobody's.
            Shared::take_down_lane(Lane::Second);
        }
        let mut ended = self.lanes(wanted, &mut first, |case| case.labs().is_some());
        if ended.is_ok() && !self.state().queue.is_empty() {
            // Before a second lab is booted beside what is left.
            first.take_down();
            ended = self.lanes(wanted, &mut first, Case::has_room_beside);
        }
        let ended = ended.and_then(|()| self.lane(&mut first, |state| state.queue.pop_front()));
        if !keep {
            first.take_down();
        }
        let State { mut record, begun, left, .. } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        record.keep(first.kind())?;
        ended.map(|()| Done { record, begun, left })
    }

    /// Runs the cases of a kind, the first lane from the front of the queue and the second from its back.
    fn lanes(&self, wanted: u8, first: &mut Shared, kind: fn(&Case) -> bool) -> anyhow::Result<()> {
        let from_the_front = |state: &mut State<'c>| {
            let at = state.queue.iter().position(|case| kind(case))?;
            state.queue.remove(at)
        };
        let of_the_kind = self.state().queue.iter().filter(|case| kind(case)).count();
        if wanted < 2 || of_the_kind < 2 {
            return self.lane(first, from_the_front);
        }
        std::thread::scope(|scope| {
            let beside = scope.spawn(|| {
                let mut second = Shared::left(Lane::Second, None);
                let ended = self.lane(&mut second, |state| {
                    let at = state.queue.iter().rposition(|case| kind(case))?;
                    state.queue.remove(at)
                });
                second.take_down();
                ended
            });
            let ended = self.lane(first, from_the_front);
            beside.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the second lane panicked"))).and(ended)
        })
    }

    /// Runs what `next` takes from the queue, until it takes nothing.
    fn lane(&self, shared: &mut Shared, next: impl Fn(&mut State<'c>) -> Option<&'c Case>) -> anyhow::Result<()> {
        loop {
            let case = {
                let mut state = self.state();
                let Some(case) = next(&mut state) else { return Ok(()) };
                if self.cli.all {
                    let open: Vec<&Case> = std::iter::once(case).chain(state.queue.iter().copied()).collect();
                    say(&state.record.estimate(&open, shared.kind()));
                }
                let needs = state.record.needs(case, shared.kind());
                if self.cli.within.is_some_and(|minutes| !fits(minutes, self.start.elapsed().as_secs_f64(), needs)) {
                    state.left.push((case.name, needs.unwrap_or_default()));
                    continue;
                }
                state.begun += 1;
                case
            };
            self.case(case, shared)?;
        }
    }

    /// Runs one, says what came of it and writes it down.
    fn case(&self, case: &Case, shared: &mut Shared) -> anyhow::Result<()> {
        let clock = Instant::now();
        let tried = if self.root {
            try_twice(case, shared)
        } else {
            Tried::without_lab(Ok(Verdict::CannotTry("the lab needs root".to_owned())))
        };
        let (outcome, detail) = match tried.result {
            Ok(Verdict::Holds(detail)) => (Outcome::Passed, detail),
            Ok(Verdict::CannotTry(why)) => (Outcome::Skipped, why),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        };
        let seconds = clock.elapsed().as_secs_f64();
        let word = match outcome {
            Outcome::Passed => "ok  ",
            Outcome::Failed => "FAIL",
            Outcome::Skipped => "skip",
        };
        say(&format!("{word} {:50} {seconds:6.1} s  {}", case.name, detail.chars().take(4000).collect::<String>()));
        let record = &mut self.state().record;
        if let Some((labs, seconds)) = tried.boot {
            record.booted(labs, seconds);
        }
        record.add(case.name, CaseRecord { outcome, detail, first_attempt: tried.first_attempt, seconds }, tried.took)
    }
}

/// Lanes for this host.
fn usual() -> u8 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let system = rustix::system::sysinfo();
    lanes_for(processors, system.totalram * u64::from(system.mem_unit))
}

fn lanes_for(processors: usize, memory: u64) -> u8 {
    if processors >= 2 && memory >= ROOM_FOR_TWO { 2 } else { 1 }
}

/// Whether a case that needs so many seconds, or never passed, may begin after so many.
fn fits(minutes: u32, elapsed: f64, needs: Option<f64>) -> bool {
    elapsed + needs.unwrap_or_default() <= f64::from(minutes) * 60.0
}

/// What came of trying a case.
struct Tried {
    result: anyhow::Result<Verdict>,
    /// How a first attempt failed, where a second one was made.
    first_attempt: Option<String>,
    /// The boot of shared labs within the last attempt: which, and how many seconds it took.
    boot: Option<(Labs, f64)>,
    /// Wall seconds of the last attempt without that boot.
    took: f64,
}

impl Tried {
    fn without_lab(result: anyhow::Result<Verdict>) -> Self {
        Self { result, first_attempt: None, boot: None, took: 0.0 }
    }
}

/// Emulated processors lose an interrupt now and then, and what they ran hangs. A fault of ours fails in a fresh lab as well; a
/// lab's own does not, and the record keeps what it was.
fn try_twice(case: &Case, shared: &mut Shared) -> Tried {
    let clock = Instant::now();
    let first = attempt(case, shared);
    let error = match &first.result {
        Err(error) if !(case.labs().is_none() && context::keeps_own()) => format!("{error:#}"),
        _ => return first,
    };
    say(&format!("again {:49} {:6.1} s  {error}", case.name, clock.elapsed().as_secs_f64()));
    shared.take_down();
    Tried { first_attempt: Some(error), ..attempt(case, shared) }
}

fn attempt(case: &Case, shared: &mut Shared) -> Tried {
    let clock = Instant::now();
    let result = match case.body {
        Body::Shared(labs, body) => shared.of(labs).and_then(body),
        Body::Own(_, body) => {
            // A case that wants labs boots them itself.
            shared.take_down();
            context::forget_own();
            body().inspect_err(|_| {
                if !context::keeps_own() {
                    context::take_down_own(say);
                }
            })
        }
    };
    let boot = shared.booted();
    let took = clock.elapsed().as_secs_f64() - boot.map_or(0.0, |(_, seconds)| seconds);
    Tried { boot, took, ..Tried::without_lab(result) }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_case_begins_if_by_its_last_time_it_ends_in_time() {
        assert!(fits(10, 0.0, Some(600.0)) && fits(10, 500.0, Some(100.0)) && fits(10, 599.0, None));
        assert!(!fits(10, 0.0, Some(601.0)) && !fits(10, 501.0, Some(100.0)) && !fits(10, 601.0, None));
    }

    #[test]
    fn a_small_host_runs_one_case_at_a_time() {
        assert_eq!((lanes_for(1, 64 << 30), lanes_for(2, 16 << 30), lanes_for(2, 24 << 30)), (1, 1, 2));
    }

    #[test]
    fn two_lanes_come_to_every_case_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cases.json");
        let all = crate::cases::all();
        let some: Vec<&Case> =
            all.iter().filter(|case| ["lab/", "fleet/"].iter().any(|part| case.name.starts_with(part))).collect();
        assert!(some.iter().any(|case| case.labs().is_none()) && some.iter().any(|case| case.labs().is_some()));
        assert!(
            some.iter().any(|case| !case.has_room_beside())
                && some.iter().filter(|case| case.labs().is_none()).count() > 1
        );
        for lanes in ["--lanes=1", "--lanes=2"] {
            let cli = Cli::parse_from(["cases", lanes]);
            let mut run = Run::new(some.clone(), &cli, Record::resume(&path, lanes));
            // Then no lab is booted: each is skipped, with the reason.
            run.root = false;
            let done = run.all(None, false).unwrap();
            assert_eq!((done.begun, done.record.totals()), (some.len(), (0, 0, some.len())));
        }
    }
}
