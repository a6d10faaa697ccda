//! Memory latency: nanoseconds per load of a chain in which each load needs the result of the one before.

use std::collections::BTreeSet;

use nearmetal_host::HostFs;
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::Serialize;

use crate::binding::{Binding, Request};
use crate::error::{ProbeError, within};
use crate::memory::backing::Backing;
use crate::memory::budget::{self, CacheRule};
use crate::memory::buffer::buffer;
use crate::memory::chase::Ring;
use crate::memory::permutation::{LINE, Pattern, slot_bytes, visits};
use crate::random::Random;
use crate::statistics::Samples;
use crate::system::mapping::PageKind;
use crate::system::{affinity, clock};

/// Buffer when no size is given. Small enough for a guest of 256 MiB.
pub const DEFAULT_SIZE: Bytes = Bytes::from_mib(64);
/// Samples accepted: three are needed for a median that is not a sample's accident.
pub const SAMPLES: (u64, u64) = (3, 100_000);
/// Loads per sample accepted. Below a thousand the clock's own cost shows.
pub const LOADS: (u64, u64) = (1_000, 1_000_000_000);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to run.
    pub request: Request,
    /// Buffer; `None` for [`DEFAULT_SIZE`] or what fits.
    pub size: Option<Bytes>,
    /// Page size wanted.
    pub pages: PageKind,
    /// Refuse other pages than wanted.
    pub exact_pages: bool,
    /// How the chase walks.
    pub pattern: Pattern,
    /// How many samples.
    pub samples: u64,
    /// Loads in each.
    pub loads: u64,
    /// Seed of the walk.
    pub seed: u64,
}

/// What ran, and what came out.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// Pattern of the walk.
    pub pattern: Pattern,
    /// Seed of the walk.
    pub seed: u64,
    /// Buffer the walk covers.
    pub size_bytes: u64,
    /// Places visited once per pass.
    pub places: u64,
    /// Bytes of cache lines touched per pass: the caches must hold these to serve the loads.
    pub touched_bytes: u64,
    /// Loads per sample.
    pub loads_per_sample: u64,
    /// Loads of the first pass, which was dropped.
    pub dropped_loads: u64,
    /// Affinity and policy as the kernel has them.
    pub binding: Binding,
    /// CPUs the samples ended on.
    pub ran_on: CpuSet,
    /// Pages behind the buffer.
    pub backing: Backing,
    /// Buffer against last-level cache.
    pub cache: CacheRule,
    /// Name of the clock.
    pub clock: &'static str,
    /// Nanoseconds one reading of the clock costs; two are in each sample.
    pub clock_cost_ns: f64,
    /// The figure: nanoseconds per load.
    pub latency: Samples,
    /// What the reader must know.
    pub notes: Vec<String>,
}

/// Binds the calling thread to one CPU of the request (the first), builds the ring, drops a pass, takes the samples.
///
/// # Errors
/// See [`ProbeError`]: bounds, binding, memory.
pub fn measure(settings: &Settings) -> Result<Latency, ProbeError> {
    let samples = within("--samples", settings.samples, SAMPLES.0, SAMPLES.1)?;
    within("--loads", settings.loads, LOADS.0, LOADS.1)?;
    settings.request.check()?;
    let files = HostFs::live();
    let first = settings.request.cpus.as_ref().and_then(CpuSet::first).map(CpuSet::one);
    let request = Request { cpus: first, nodes: settings.request.nodes.clone() };
    let binding = request.apply()?;
    let nodes: Option<&NodeSet> = request.nodes.as_ref();
    let small_or_transparent = budget::available(&files, nodes).filter(|_| settings.pages != PageKind::Huge);
    let size = budget::size(settings.size, DEFAULT_SIZE, small_or_transparent)?;

    let order = visits(settings.pattern, size.bytes, &mut Random::new(settings.seed))?;
    let (mapping, first_backing) = buffer(&files, size.bytes, settings.pages, nodes, settings.exact_pages)?;
    let start = mapping.start().addr();
    let length = mapping.len() as u64;
    let mut ring = Ring::new(mapping, &order)?;
    drop(order);
    let dropped_loads = ring.follow(ring.places());

    let mut ran_on = BTreeSet::new();
    let mut values = Vec::with_capacity(samples as usize);
    let mut loads = settings.loads;
    for _ in 0..samples {
        let begin = clock::nanoseconds();
        loads = ring.follow(settings.loads);
        let end = clock::nanoseconds();
        values.push(end.saturating_sub(begin) as f64 / loads as f64);
        ran_on.insert(affinity::current());
    }
    // Read after the samples: what khugepaged or balancing did meanwhile counts.
    let backing = Backing::read(&files, start, length, settings.pages, first_backing.reason);
    let ran_on: CpuSet = ran_on.into_iter().collect();
    let cache = CacheRule::new(budget::last_level_cache(&files, &ran_on), size.bytes);
    let notes = [size.note, backing.warning(), cache.warning(size.bytes)].into_iter().flatten().collect();
    Ok(Latency {
        pattern: settings.pattern,
        seed: settings.seed,
        size_bytes: size.bytes,
        places: ring.places(),
        touched_bytes: size.bytes / slot_bytes(settings.pattern) * LINE,
        loads_per_sample: loads,
        dropped_loads,
        binding,
        ran_on,
        backing,
        cache,
        clock: clock::NAME,
        clock_cost_ns: clock::cost(),
        latency: Samples::new("ns/load", values).ok_or(ProbeError::Thread)?,
        notes,
    })
}
