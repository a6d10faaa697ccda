//! Memory bandwidth: bytes per second of four simple loops on several threads, each on memory of its own.

use nearmetal_host::HostFs;
use nearmetal_units::{Bytes, CpuSet};
use serde::Serialize;

use crate::binding::{Binding, Request};
use crate::error::{ProbeError, within};
use crate::memory::backing::Backing;
use crate::memory::budget::{self, CacheRule};
use crate::memory::kernels::{Instructions, Kernel, Stores};
use crate::memory::team::{Member, run_team};
use crate::statistics::Samples;
use crate::system::clock;
use crate::system::mapping::PageKind;

/// Buffer when no size is given and the cache is not known.
pub const FALLBACK_SIZE: Bytes = Bytes::from_mib(256);
/// Smallest default.
pub const SMALLEST_DEFAULT: Bytes = Bytes::from_mib(64);
/// Threads accepted.
pub const THREADS: (u64, u64) = (1, 4096);
/// Samples accepted.
pub const SAMPLES: (u64, u64) = (3, 10_000);
/// A sample repeats its pass until it lasts this long, so that starting the threads together does not show.
pub const SAMPLE_NANOSECONDS: u64 = 20_000_000;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to run.
    pub request: Request,
    /// Threads; `None` for one per CPU of the binding.
    pub threads: Option<u64>,
    /// Memory of all threads together; `None` for four times the last-level cache, or what fits.
    pub size: Option<Bytes>,
    /// Page size wanted.
    pub pages: PageKind,
    /// Refuse other pages than wanted.
    pub exact_pages: bool,
    /// How many samples of each kernel.
    pub samples: u64,
    /// Instruction set; `None` for the widest this CPU shows.
    pub instructions: Option<Instructions>,
    /// How results are stored.
    pub stores: Stores,
}

/// The figures of one kernel.
#[derive(Debug, Clone, Serialize)]
pub struct KernelFigures {
    /// The loop.
    pub kernel: Kernel,
    /// Bytes read and written per sample, by all threads.
    pub bytes_per_sample: u64,
    /// The figure: bytes read plus bytes written, per second. Lines read only because a store needs them do not count.
    pub bandwidth: Samples,
}

/// What ran, and what came out.
#[derive(Debug, Clone, Serialize)]
pub struct Bandwidth {
    /// CPU of each thread.
    pub thread_cpus: Vec<u32>,
    /// Memory of all threads together: every kernel goes over all of it.
    pub size_bytes: u64,
    /// Instruction set that ran.
    pub instructions: Instructions,
    /// Stores that ran (read has none).
    pub stores: Stores,
    /// Affinity and policy of the process as the kernel has them; each thread is then held on one CPU of it.
    pub binding: Binding,
    /// Pages behind each thread's memory.
    pub backing: Vec<Backing>,
    /// Size against last-level caches.
    pub cache: CacheRule,
    /// Name of the clock.
    pub clock: &'static str,
    /// One entry per kernel.
    pub kernels: Vec<KernelFigures>,
    /// What the reader must know.
    pub notes: Vec<String>,
}

/// Binds, starts the threads, and runs each kernel for its samples, first pass dropped.
///
/// # Errors
/// See [`ProbeError`]: bounds, binding, memory.
pub fn measure(settings: &Settings) -> Result<Bandwidth, ProbeError> {
    let samples = within("--samples", settings.samples, SAMPLES.0, SAMPLES.1)?;
    let instructions = settings.instructions.unwrap_or_else(Instructions::widest);
    if !instructions.available() {
        return Err(ProbeError::NotApplied {
            what: "instruction set",
            asked: format!("{instructions:?}").to_lowercase(),
            actual: "no such instructions on this CPU".to_owned(),
        });
    }
    let files = HostFs::live();
    let binding = settings.request.apply()?;
    let threads = within("--threads", settings.threads.unwrap_or(binding.cpus.len() as u64), THREADS.0, THREADS.1)?;
    let cpus: Vec<u32> = binding.cpus.iter().collect();
    let thread_cpus: Vec<u32> = cpus.iter().copied().cycle().take(threads as usize).collect();
    let used: CpuSet = thread_cpus.iter().copied().collect();
    let cache = budget::last_level_cache(&files, &used);
    let nodes = settings.request.nodes.as_ref();
    let limit = budget::available(&files, nodes).filter(|_| settings.pages != PageKind::Huge);
    let size = budget::size(settings.size, default_size(cache), limit)?;
    let share = size.bytes / threads;
    if share < 4096 {
        return Err(ProbeError::Limit {
            what: "--size",
            value: Bytes::new(size.bytes).to_string(),
            low: format!("4 KiB per thread ({threads} threads)"),
            high: budget::SIZE_LIMIT.to_string(),
        });
    }

    let members = thread_cpus.iter().map(|cpu| Member {
        cpu: *cpu,
        share,
        pages: settings.pages,
        nodes: nodes.cloned(),
        exact: settings.exact_pages,
    });
    let outcome = run_team(members.collect(), instructions, settings.stores, samples)?;
    let kernels = outcome.kernels.into_iter().map(|(kernel, bytes_per_sample, values)| {
        let bandwidth = Samples::new("bytes/s", values).ok_or(ProbeError::Thread)?;
        Ok(KernelFigures { kernel, bytes_per_sample, bandwidth })
    });
    let kernels = kernels.collect::<Result<Vec<_>, ProbeError>>()?;
    let size_bytes = share * threads;
    let cache = CacheRule::new(cache, size_bytes);
    let mut notes: Vec<String> = [size.note, cache.warning(size_bytes)].into_iter().flatten().collect();
    notes.extend(outcome.backing.iter().find_map(Backing::warning));
    if used.len() < thread_cpus.len() {
        notes.push(format!("{threads} threads share {} CPUs", used.len()));
    }
    Ok(Bandwidth {
        thread_cpus,
        size_bytes,
        instructions,
        stores: settings.stores,
        binding,
        backing: outcome.backing,
        cache,
        clock: clock::NAME,
        kernels,
        notes,
    })
}

/// Four times the cache, at least 64 MiB and at most the limit.
pub(crate) fn default_size(cache: Option<u64>) -> Bytes {
    let size = cache.map_or(FALLBACK_SIZE, |cache| Bytes::new(cache).times(4));
    size.max(SMALLEST_DEFAULT).min(budget::SIZE_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_gets_past_the_cache() {
        assert_eq!(default_size(Some(32 << 20)), Bytes::from_mib(128));
        assert_eq!(default_size(Some(1 << 20)), SMALLEST_DEFAULT);
        assert_eq!(default_size(Some(u64::MAX)), budget::SIZE_LIMIT);
        assert_eq!(default_size(None), FALLBACK_SIZE);
    }
}
