//! Threads that run a kernel at the same time, each on one CPU and on memory it populated itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};

use nearmetal_host::HostFs;
use nearmetal_units::{CpuSet, NodeSet};

use crate::binding::Request;
use crate::error::ProbeError;
use crate::memory::backing::Backing;
use crate::memory::bandwidth::SAMPLE_NANOSECONDS;
use crate::memory::buffer::buffer;
use crate::memory::kernels::{Instructions, Kernel, Stores, pass};
use crate::system::clock;
use crate::system::mapping::{Mapping, PageKind};

/// Passes in a sample, at most: a clock that stands still must not keep us here.
const PASSES_LIMIT: u64 = 100_000;
/// Stack of a thread, in bytes.
const STACK: usize = 2 << 20;
/// What else a thread takes of the addresses, in bytes: guard pages, its own variables, the stack that signals use.
const BESIDE_STACK: usize = 64 << 10;

/// One thread of the team.
#[derive(Debug, Clone)]
pub struct Member {
    /// CPU it is held on.
    pub cpu: u32,
    /// Bytes it works on.
    pub share: u64,
    /// Page size wanted.
    pub pages: PageKind,
    /// Nodes its memory must come from (its policy is inherited from the process).
    pub nodes: Option<NodeSet>,
    /// Refuse other pages than wanted.
    pub exact: bool,
}

/// What a team brings back.
#[derive(Debug)]
pub struct Outcome {
    /// Per kernel: bytes per sample over all threads, and bytes per second of each sample.
    pub kernels: Vec<(Kernel, u64, Vec<f64>)>,
    /// Pages behind each member's memory, read after the samples.
    pub backing: Vec<Backing>,
}

/// One timed run of one thread.
#[derive(Debug, Clone, Copy)]
struct Span {
    begin: u64,
    end: u64,
    bytes: u64,
}

/// Spans of one thread, in the order of kernels and samples, and its backing.
type Report = Result<(Vec<Vec<Span>>, Backing), ProbeError>;

struct Shared {
    barrier: Barrier,
    /// A member could not get its CPU or memory: all stop after the first barrier.
    failed: AtomicBool,
    /// Passes per sample of the kernel that runs.
    passes: AtomicU64,
}

/// Runs all kernels. A sample lasts from the first thread's start to the last thread's end.
///
/// # Errors
/// The first member's error: binding, memory, or [`ProbeError::Thread`].
pub fn run_team(
    members: Vec<Member>,
    instructions: Instructions,
    stores: Stores,
    samples: u64,
) -> Result<Outcome, ProbeError> {
    let shared =
        Shared { barrier: Barrier::new(members.len()), failed: AtomicBool::new(false), passes: AtomicU64::new(1) };
    Ok(combine(together(&members, |member| run_member(member, &shared, instructions, stores, samples))?))
}

/// Runs `work` on a thread for each member and returns what they bring back, in the order of the members. No thread begins
/// before all exist, so `work` may wait at a barrier of as many as there are members.
///
/// # Errors
/// [`ProbeError::Kernel`] when not all threads can be started: none then works. Otherwise the first member's error;
/// [`ProbeError::Thread`], which a member returns that stopped because of another, only if there is no other.
pub fn together<M: Sync, T: Send>(
    members: &[M],
    work: impl Fn(&M) -> Result<T, ProbeError> + Sync,
) -> Result<Vec<T>, ProbeError> {
    let reports = Mutex::new(Vec::with_capacity(members.len()));
    let abandoned = AtomicBool::new(false);
    let gate = Mutex::new(());
    let not_started = |error| ProbeError::kernel(format!("start {} threads", members.len()), error);
    // A thread that exists and then finds no room for its signal stack ends the whole process (std aborts). So there must
    // be room for all of them before the first.
    Mapping::room_for(members.len().saturating_mul(STACK + BESIDE_STACK)).map_err(not_started)?;
    std::thread::scope(|scope| -> Result<(), ProbeError> {
        // Nobody goes to a barrier before everybody exists: the gate is shut while threads are started.
        let shut = gate.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, member) in members.iter().enumerate() {
            let (work, reports, abandoned, gate) = (&work, &reports, &abandoned, &gate);
            let run = move || {
                drop(gate.lock().unwrap_or_else(PoisonError::into_inner));
                if !abandoned.load(Ordering::SeqCst) {
                    let report = work(member);
                    reports.lock().unwrap_or_else(PoisonError::into_inner).push((index, report));
                }
            };
            if let Err(error) = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run) {
                abandoned.store(true, Ordering::SeqCst);
                return Err(not_started(error));
            }
        }
        drop(shut);
        Ok(())
    })?;
    let mut reports: Vec<(usize, Result<T, ProbeError>)> = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    reports.sort_by_key(|(index, _)| *index);
    // A member that failed by itself says more than those that stopped because of it.
    if let Some(index) = reports.iter().position(|(_, report)| !matches!(report, Ok(_) | Err(ProbeError::Thread))) {
        return reports.swap_remove(index).1.map(|_| Vec::new());
    }
    reports.into_iter().map(|(_, report)| report).collect()
}

fn combine(reports: Vec<(Vec<Vec<Span>>, Backing)>) -> Outcome {
    let (spans, backing): (Vec<_>, Vec<_>) = reports.into_iter().unzip();
    let kernels = Kernel::ALL.into_iter().enumerate().map(|(index, kernel)| {
        let of_kernel: Vec<&Vec<Span>> = spans.iter().filter_map(|member| member.get(index)).collect();
        let count = of_kernel.iter().map(|spans| spans.len()).min().unwrap_or(0);
        let mut bytes_per_sample = 0;
        let values = (0..count).map(|sample| {
            let together = of_kernel.iter().map(|spans| spans[sample]);
            let begin = together.clone().map(|span| span.begin).min().unwrap_or(0);
            let end = together.clone().map(|span| span.end).max().unwrap_or(0);
            bytes_per_sample = together.map(|span| span.bytes).sum();
            bytes_per_sample as f64 * 1e9 / end.saturating_sub(begin) as f64
        });
        let values = values.collect();
        (kernel, bytes_per_sample, values)
    });
    Outcome { kernels: kernels.collect(), backing }
}

/// All members call the same barriers the same number of times, whatever fails: the failure is shared first.
fn run_member(member: &Member, shared: &Shared, instructions: Instructions, stores: Stores, samples: u64) -> Report {
    let prepared = prepare(member);
    if prepared.is_err() {
        shared.failed.store(true, Ordering::SeqCst);
    }
    shared.barrier.wait();
    if shared.failed.load(Ordering::SeqCst) {
        return prepared.and(Err(ProbeError::Thread));
    }
    let (mut mapping, backing) = prepared?;
    let (start, length) = (mapping.start().addr(), mapping.len() as u64);
    let words = (member.share / 8) as usize;
    let region = mapping.words_mut();
    let words = words.min(region.len());
    let region = &mut region[..words];
    let mut all = Vec::with_capacity(Kernel::ALL.len());
    for kernel in Kernel::ALL {
        let timed = |passes: u64, region: &mut [u64]| {
            shared.barrier.wait();
            let begin = clock::nanoseconds();
            let bytes = (0..passes).map(|_| pass(kernel, instructions, stores, region)).sum();
            Span { begin, end: clock::nanoseconds(), bytes }
        };
        // The first pass is dropped, and says how many passes make a sample: the same number for every thread.
        let first = timed(1, region);
        if shared.barrier.wait().is_leader() {
            let elapsed = first.end.saturating_sub(first.begin).max(1);
            shared.passes.store(SAMPLE_NANOSECONDS.div_ceil(elapsed).clamp(1, PASSES_LIMIT), Ordering::SeqCst);
        }
        shared.barrier.wait();
        let passes = shared.passes.load(Ordering::SeqCst);
        all.push((0..samples).map(|_| timed(passes, region)).collect());
    }
    let files = HostFs::live();
    Ok((all, Backing::read(&files, start, length, member.pages, backing.reason)))
}

fn prepare(member: &Member) -> Result<(Mapping, Backing), ProbeError> {
    Request { cpus: Some(CpuSet::one(member.cpu)), nodes: None }.apply()?;
    buffer(&HostFs::live(), member.share, member.pages, member.nodes.as_ref(), member.exact)
}
