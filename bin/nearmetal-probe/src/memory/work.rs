//! Work as a server program does it: threads that the kernel places, each following a ring of pointers in memory that it
//! populated itself.
//!
//! No thread is held on a CPU: what is measured is what the kernel, of a guest above all, makes of its nodes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nearmetal_host::HostFs;
use nearmetal_units::{Bytes, NodeSet};
use serde::Serialize;

use crate::binding::{Binding, Request};
use crate::error::{ProbeError, within};
use crate::memory::backing::Backing;
use crate::memory::bandwidth::{THREADS, default_size};
use crate::memory::budget::{self, CacheRule};
use crate::memory::buffer::buffer;
use crate::memory::chase::Ring;
use crate::memory::permutation::{GROUP_PAGES, PAGE, Pattern, visits};
use crate::memory::team::together;
use crate::random::Random;
use crate::system::clock;
use crate::system::mapping::{HUGE_PAGE, PageKind, SMALL_PAGE};

/// Seconds accepted.
pub const SECONDS: (u64, u64) = (1, 3600);
/// Loads between two looks at the clock: under half a millisecond at 100 ns each, and some 15 µs from a near cache, so that
/// neither the end is late nor the clock shows.
pub const CHUNK: u64 = 4096;

/// What to do.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the process may run; its threads are not held anywhere within that.
    pub request: Request,
    /// Threads; `None` for one per CPU of the binding.
    pub threads: Option<u64>,
    /// How long, from the moment all have begun.
    pub duration: Duration,
    /// Memory of all threads together; `None` for four times the last-level cache, or what fits.
    pub size: Option<Bytes>,
    /// Page size wanted.
    pub pages: PageKind,
    /// Refuse other pages than wanted.
    pub exact_pages: bool,
    /// Seed of the first thread's walk; each further thread takes the next number.
    pub seed: u64,
}

/// What ran, and what came out.
#[derive(Debug, Clone, Serialize)]
pub struct Work {
    /// Threads that worked.
    pub threads: u64,
    /// Memory of all threads together, in equal shares.
    pub size_bytes: u64,
    /// When all threads had begun to walk: ms since 1970 by the system's clock.
    pub began_ms: f64,
    /// When the last thread ended, by the same clock.
    pub ended_ms: f64,
    /// Loads of all threads.
    pub loads: u64,
    /// The figure: loads of all threads per second, from the first thread's begin to the last one's end, by a clock that
    /// nobody sets.
    pub loads_per_second: f64,
    /// Loads per second of each thread, from its own begin to its own end.
    pub each: Vec<f64>,
    /// Affinity and policy of the process as the kernel has them.
    pub binding: Binding,
    /// Pages behind each thread's memory, read after the work.
    pub backing: Vec<Backing>,
    /// What the reader must know.
    pub notes: Vec<String>,
}

/// One thread.
#[derive(Debug, Clone)]
pub struct Member {
    /// Bytes it works on.
    pub share: u64,
    /// Page size wanted.
    pub pages: PageKind,
    /// Nodes its memory must come from (its policy is inherited from the process).
    pub nodes: Option<NodeSet>,
    /// Refuse other pages than wanted.
    pub exact: bool,
    /// Seed of its walk.
    pub seed: u64,
}

/// What the threads bring back.
#[derive(Debug)]
pub struct Outcome {
    /// One for each member, in their order.
    pub walks: Vec<Walk>,
    /// Pages behind each member's memory, read after all walks.
    pub backing: Vec<Backing>,
    /// When all had begun, since 1970 by the system's clock.
    pub began: Duration,
}

/// One thread's walk; times in ns of the probe's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// Its first load.
    pub begin: u64,
    /// After its last load.
    pub end: u64,
    /// The end, since 1970 by the system's clock.
    pub ended: Duration,
    /// Loads done, a multiple of [`CHUNK`].
    pub loads: u64,
}

struct Shared {
    barrier: Barrier,
    /// A member could not get its memory: all stop after the first barrier.
    failed: AtomicBool,
    /// Members that have begun to walk.
    begun: AtomicU64,
    /// When to stop, in ns of the probe's clock; the largest number until all have begun.
    deadline: AtomicU64,
    /// When all had begun: ns since 1970.
    began: AtomicU64,
}

/// Binds the process, starts the threads, and lets them work.
///
/// # Errors
/// See [`ProbeError`]: bounds, binding, memory.
pub fn measure(settings: &Settings) -> Result<Work, ProbeError> {
    let files = HostFs::live();
    let binding = settings.request.apply()?;
    let threads = within("--threads", settings.threads.unwrap_or(binding.cpus.len() as u64), THREADS.0, THREADS.1)?;
    let cache = budget::last_level_cache(&files, &binding.cpus);
    let nodes = settings.request.nodes.as_ref();
    let default = default_size(cache).max(Bytes::new(smallest_share(settings.pages)).times(threads));
    let wanted = settings.size.unwrap_or(default).get();
    // Free memory does not count the pool's pages; where the pool is short, the buffer is of small pages.
    let from_pool =
        settings.pages == PageKind::Huge && budget::pool_shortage(&files, settings.pages, wanted, nodes).is_none();
    let limit = budget::available(&files, nodes).filter(|_| !from_pool);
    let size = budget::size(settings.size, default, limit)?;
    let share = share(size.bytes, threads, settings.pages)?;

    let member = |index| Member {
        share,
        pages: settings.pages,
        nodes: nodes.cloned(),
        exact: settings.exact_pages,
        seed: settings.seed.wrapping_add(index),
    };
    let members: Vec<Member> = (0..threads).map(member).collect();
    let outcome = run(&members, settings.duration)?;
    let size_bytes = share * threads;
    let mut notes: Vec<String> =
        [size.note, CacheRule::new(cache, size_bytes).warning(size_bytes)].into_iter().flatten().collect();
    notes.extend(outcome.backing.iter().find_map(Backing::warning));
    if (binding.cpus.len() as u64) < threads {
        notes.push(format!("{threads} threads share {} CPUs", binding.cpus.len()));
    }
    Ok(Work {
        threads,
        size_bytes,
        began_ms: milliseconds(outcome.began),
        ended_ms: milliseconds(ended(&outcome.walks)),
        loads: outcome.walks.iter().map(|walk| walk.loads).sum(),
        loads_per_second: loads_per_second(&outcome.walks),
        each: outcome.walks.iter().map(|walk| loads_per_second(&[*walk])).collect(),
        binding,
        backing: outcome.backing,
        notes,
    })
}

/// Lets the members work until `duration` has passed since all had begun.
///
/// # Errors
/// The first member's error (memory), or [`ProbeError::Kernel`] when not all threads can be started; nobody works then.
pub fn run(members: &[Member], duration: Duration) -> Result<Outcome, ProbeError> {
    let shared = Shared {
        barrier: Barrier::new(members.len()),
        failed: AtomicBool::new(false),
        begun: AtomicU64::new(0),
        deadline: AtomicU64::new(u64::MAX),
        began: AtomicU64::new(0),
    };
    let all = members.len() as u64;
    let (walks, backing) = together(members, |member| run_member(member, &shared, all, duration))?.into_iter().unzip();
    Ok(Outcome { walks, backing, began: Duration::from_nanos(shared.began.into_inner()) })
}

/// All members call the same barriers the same number of times, whatever fails: the failure is shared first.
fn run_member(member: &Member, shared: &Shared, all: u64, duration: Duration) -> Result<(Walk, Backing), ProbeError> {
    let prepared = prepare(member);
    if prepared.is_err() {
        shared.failed.store(true, Ordering::SeqCst);
    }
    shared.barrier.wait();
    if shared.failed.load(Ordering::SeqCst) {
        return prepared.and(Err(ProbeError::Thread));
    }
    let Prepared { mut ring, start, length, reason } = prepared?;
    let begin = clock::nanoseconds();
    // A thread may leave the barrier late, for want of a CPU: the last one to begin starts the time.
    if shared.begun.fetch_add(1, Ordering::SeqCst) + 1 == all {
        shared.began.store(nanoseconds(since_1970()), Ordering::SeqCst);
        shared.deadline.store(clock::nanoseconds().saturating_add(nanoseconds(duration)), Ordering::SeqCst);
    }
    let mut loads = 0;
    let end = loop {
        loads += ring.follow(CHUNK);
        let now = clock::nanoseconds();
        if now >= shared.deadline.load(Ordering::Relaxed) {
            break now;
        }
    };
    let walk = Walk { begin, end, ended: since_1970(), loads };
    // Reading the backing takes time of a CPU on which another may still walk.
    shared.barrier.wait();
    let backing = Backing::read(&HostFs::live(), start, length, member.pages, reason);
    Ok((walk, backing))
}

/// A thread's memory before it walks.
struct Prepared {
    ring: Ring,
    start: usize,
    length: u64,
    reason: Option<String>,
}

fn prepare(member: &Member) -> Result<Prepared, ProbeError> {
    let files = HostFs::live();
    let (mapping, backing) = buffer(&files, member.share, member.pages, member.nodes.as_ref(), member.exact)?;
    let (start, length) = (mapping.start().addr(), mapping.len() as u64);
    let order = visits(Pattern::Groups, member.share, &mut Random::new(member.seed))?;
    Ok(Prepared { ring: Ring::new(mapping, &order)?, start, length, reason: backing.reason })
}

/// A thread's part of the memory: whole pages of the kind, so that no thread maps more than its share.
fn share(bytes: u64, threads: u64, pages: PageKind) -> Result<u64, ProbeError> {
    let share = bytes / threads / page_bytes(pages) * page_bytes(pages);
    let smallest = smallest_share(pages);
    if share >= smallest {
        return Ok(share);
    }
    Err(ProbeError::Limit {
        what: "--size",
        value: Bytes::new(bytes).to_string(),
        low: format!("{} per thread ({threads} threads)", Bytes::new(smallest)),
        high: budget::SIZE_LIMIT.to_string(),
    })
}

/// One group of the pattern: with less, the walk would not leave it. And one page of the kind.
fn smallest_share(pages: PageKind) -> u64 {
    page_bytes(pages).max(GROUP_PAGES * PAGE)
}

fn page_bytes(pages: PageKind) -> u64 {
    match pages {
        PageKind::Small => SMALL_PAGE as u64,
        PageKind::Huge | PageKind::Transparent => HUGE_PAGE as u64,
    }
}

/// Of these walks together, from the first begin to the last end.
fn loads_per_second(walks: &[Walk]) -> f64 {
    let begin = walks.iter().map(|walk| walk.begin).min().unwrap_or(0);
    let end = walks.iter().map(|walk| walk.end).max().unwrap_or(0);
    let loads: u64 = walks.iter().map(|walk| walk.loads).sum();
    loads as f64 * 1e9 / end.saturating_sub(begin).max(1) as f64
}

/// The last end by the system's clock; which is the last, the probe's clock says, since the system's may be set meanwhile.
fn ended(walks: &[Walk]) -> Duration {
    walks.iter().max_by_key(|walk| walk.end).map(|walk| walk.ended).unwrap_or_default()
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: u64 = GROUP_PAGES * PAGE;

    fn member(share: u64) -> Member {
        Member { share, pages: PageKind::Small, nodes: None, exact: false, seed: 1 }
    }

    #[test]
    fn all_threads_work_until_the_time_is_over() {
        let duration = Duration::from_millis(5);
        let before = since_1970();
        let outcome = run(&[member(GROUP), member(2 * GROUP)], duration).unwrap();
        assert!(outcome.began >= before && ended(&outcome.walks) <= since_1970());
        let last_begin = outcome.walks.iter().map(|walk| walk.begin).max().unwrap();
        for walk in &outcome.walks {
            assert!(walk.loads > 0 && walk.loads.is_multiple_of(CHUNK), "{walk:?}");
            assert!(walk.end >= last_begin + nanoseconds(duration), "{walk:?} ended early");
        }
        assert_eq!(outcome.backing.iter().map(|backing| backing.mapping_bytes).collect::<Vec<_>>(), [GROUP, 2 * GROUP]);
    }

    #[test]
    fn one_thread_without_memory_stops_all_with_its_error() {
        // More than any address space: the kernel is not even asked.
        let members = [member(GROUP), member(u64::MAX), member(GROUP)];
        let error = run(&members, Duration::from_secs(3600)).unwrap_err();
        assert!(error.to_string().starts_with(&format!("the kernel refused to give {} bytes", u64::MAX)), "{error}");
    }

    #[test]
    fn the_rate_counts_from_the_first_begin_to_the_last_end() {
        let walk = |begin, end, ended, loads| Walk { begin, end, ended: Duration::from_secs(ended), loads };
        // The first to end has the later time of the system's clock: it was set back meanwhile.
        let walks = [walk(1_000_000_000, 2_000_000_000, 9, 300), walk(1_500_000_000, 3_000_000_000, 8, 100)];
        assert_eq!(loads_per_second(&walks), 200.0);
        assert_eq!(loads_per_second(&walks[..1]), 300.0);
        assert_eq!(ended(&walks), Duration::from_secs(8));
    }

    #[test]
    fn a_share_is_whole_pages_and_at_least_a_group() {
        assert_eq!(share(1_000_000, 3, PageKind::Small).unwrap(), 81 * PAGE);
        assert_eq!(share(15 << 20, 3, PageKind::Transparent).unwrap(), 4 << 20);
        let error = share(2 * GROUP - PAGE, 2, PageKind::Small).unwrap_err();
        let expected = "--size is 508 KiB, and must be from 256 KiB per thread (2 threads) to 64 GiB";
        assert_eq!(error.to_string(), expected);
        assert!(share(3 << 20, 2, PageKind::Huge).unwrap_err().to_string().contains("2 MiB per thread"));
    }
}
