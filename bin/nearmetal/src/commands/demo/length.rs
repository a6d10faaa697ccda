//! How long the demo measures: what `bench` is told, and afterwards in words what it did.

use nearmetal_load::Workload;
use nearmetal_results::{Purpose, Results, Run};
use nearmetal_units::Bytes;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Length {
    /// Pairs of 4 KiB.
    pub pairs: u32,
    /// Seconds of a sample.
    pub seconds: u32,
    /// Whether the other block sizes are run once.
    pub other_sizes: bool,
}

impl Length {
    /// Eight minutes in all: intervals that say something, and the trend over block sizes.
    pub(super) const USUAL: Self = Self { pairs: 6, seconds: 3, other_sizes: true };
    /// The least that has a report with an interval, of three pairs, and costs, which are counted in the middle of a sample.
    pub(super) const SHORT: Self = Self { pairs: 3, seconds: 2, other_sizes: false };

    /// The arguments of `nearmetal bench`. Memory latency and bandwidth would be a quarter of all runs and one more boot, for times
    /// of emulated memory.
    pub(super) fn arguments(&self) -> String {
        let Self { pairs, seconds, other_sizes } = self;
        let once = if *other_sizes { "" } else { " --no-single-shots" };
        format!("--quick --pause --pairs {pairs} --seconds {seconds} --no-memory{once}")
    }
}

/// In what these results are shorter than a measurement without `--quick`, one phrase each. Read from the runs that were
/// made, so that it holds whatever `bench` was told.
pub(super) fn shortened(results: &Results) -> Vec<String> {
    let of = |purpose: Purpose| results.runs.iter().filter(move |run| run.purpose == purpose);
    let paired = sizes(of(Purpose::Pair));
    let once: Vec<(Bytes, u32)> = sizes(of(Purpose::SingleShot))
        .into_iter()
        .filter(|(size, _)| !paired.iter().any(|own| own.0 == *size))
        .collect();
    let list = |sizes: &[(Bytes, u32)]| sizes.iter().map(|own| own.0.to_string()).collect::<Vec<_>>().join(", ");
    let mut words = Vec::new();
    words.extend(results.quick.then(|| "guests stay up between samples".to_owned()));
    words.extend((!paired.is_empty()).then(|| format!("only {} is paired", list(&paired))));
    words.extend(longest(&paired).map(|seconds| format!("{seconds} s samples")));
    words.push(counted(rounds(of(Purpose::Pair)), "pair"));
    words.push(counted(rounds(of(Purpose::SameArm)), "A/A pair"));
    let accesses = rounds(of(Purpose::Accesses));
    words.extend((accesses > 0).then(|| format!("{} with accesses to memory counted", counted(accesses, "round"))));
    words.push(match longest(&once) {
        Some(seconds) => format!("the other block sizes once, for {seconds} s, without an interval"),
        None => "no other block size".to_owned(),
    });
    let memory = |run: &Run| matches!(run.workload, Workload::MemoryLatency(_) | Workload::MemoryBandwidth(_));
    words.extend((!results.runs.iter().any(memory)).then(|| "no memory latency and bandwidth".to_owned()));
    words
}

/// Block sizes of these runs in the order they came, with the seconds of a sample.
fn sizes<'a>(runs: impl Iterator<Item = &'a Run>) -> Vec<(Bytes, u32)> {
    let mut sizes = Vec::new();
    for run in runs {
        let Workload::Fio(job) = &run.workload else { continue };
        if !sizes.contains(&(job.block_size, job.seconds)) {
            sizes.push((job.block_size, job.seconds));
        }
    }
    sizes
}

fn longest(sizes: &[(Bytes, u32)]) -> Option<u32> {
    sizes.iter().map(|(_, seconds)| *seconds).max()
}

fn rounds<'a>(runs: impl Iterator<Item = &'a Run>) -> usize {
    runs.map(|run| run.round).collect::<std::collections::BTreeSet<_>>().len()
}

fn counted(number: usize, noun: &str) -> String {
    match number {
        0 => format!("no {noun}s"),
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}
