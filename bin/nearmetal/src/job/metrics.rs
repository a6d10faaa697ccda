//! Which measured quantities a report shows, under which name and in which unit. All others stay in `results.json`.

use std::collections::BTreeSet;

use nearmetal_load::{FioJob, MemoryBandwidth, MemoryLatency, Order, Unit, Workload};
use nearmetal_report::view::{MODELLED, Metric};
use nearmetal_results::{Environment, Outcome, Purpose, Results};
use nearmetal_units::Bytes;

/// A quantity as measured, and as shown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    /// As shown.
    pub view: Metric,
    /// The workload it is of.
    pub workload: Workload,
    /// Its name among the workload's values, such as `latency.read.p99`.
    pub name: String,
    /// What a measured value is multiplied with.
    pub scale: f64,
}

/// Name, part of the id, words for people, and whether it is shown beside others if measured once. The other single
/// shots stay in `results.json`; those of memory are in the table of memory.
const WANTED: [(&str, &str, &str, bool); 21] = [
    ("iops", "iops", "", true),
    ("score", "score", "", true),
    ("score.critical", "critical", "under the kit's time limits, ", false),
    ("transactions", "transactions", "", true),
    ("latency.average", "average", "average latency, ", false),
    ("requests", "requests", "", true),
    ("bandwidth", "bandwidth", "throughput, ", true),
    ("latency.read.mean", "read-mean", "mean read latency, ", false),
    ("latency.write.mean", "write-mean", "mean write latency, ", false),
    ("latency.read.p99", "read-p99", "99th percentile of read latency, ", false),
    ("latency.write.p99", "write-p99", "99th percentile of write latency, ", false),
    ("service.p50", "service-p50", "median of the service time in a closed loop, ", false),
    ("service.p95", "service-p95", "95th percentile of the service time in a closed loop, ", false),
    ("service.p99", "service-p99", "99th percentile of the service time in a closed loop, ", false),
    ("cpu", "cpu", "CPU time of the measured side per request, ", false),
    ("work.instructions", "instructions", "instructions per request, ", false),
    ("locality.local-share", "local-share", "accesses that stay on their node, ", false),
    ("locality.mean-distance", "mean-distance", "mean distance of an access, ", false),
    ("modelled.ns", "modelled", "modelled time per request, ", false),
    ("latency.median", "median", "median of ", false),
    ("bandwidth.read", "read", "reading, ", false),
];

/// Name among the workload's values, part of the id, words before the workload's label, and whether once is enough.
type Wanted = (String, String, String, bool);

/// What a job's page shows of a workload: [`WANTED`], and of a network every value.
fn of_a_job(results: &Results, workload: &Workload) -> Vec<Wanted> {
    let fixed = WANTED.map(|(name, part, words, once)| (name.to_owned(), part.to_owned(), words.to_owned(), once));
    if let Workload::Oltp(_) = workload {
        let offered = names(results, workload).into_iter().filter_map(|name| {
            let words = offered_words(&name)?;
            Some((name.clone(), name.replace('.', "-"), words, false))
        });
        return fixed.into_iter().chain(offered).collect();
    }
    let Workload::Net(job) = workload else { return fixed.to_vec() };
    let prefix = format!("{}.", job.test.id());
    let part_of = |name: &str| Some(name.strip_prefix(&prefix)?.to_owned());
    let parts = names(results, workload).into_iter().filter_map(|name| Some((part_of(&name)?, name)));
    parts.map(|(part, name)| (name, part.replace('.', "-"), net_words(&part), part == "rate")).collect()
}

/// Beside that, every step of a set that works on files.
fn of_a_measurement(results: &Results, workload: &Workload) -> Vec<Wanted> {
    let mut wanted = of_a_job(results, workload);
    if matches!(workload, Workload::FileSystem(_)) {
        let step = |name: &String| Some(name.strip_prefix("iops.")?.to_owned());
        let steps = names(results, workload).into_iter().filter_map(|name| Some((step(&name)?, name)));
        wanted.extend(steps.map(|(step, name)| (name, format!("iops-{step}"), format!("{step}, "), true)));
    }
    wanted
}

/// Names of a workload's values, costs left out, in the order in which runs have them.
fn names(results: &Results, workload: &Workload) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let runs = results.runs.iter().filter(|run| run.workload == *workload);
    for metric in runs.flat_map(|run| run.metrics()).filter(|metric| !metric.name.contains("cost.")) {
        if !names.contains(&metric.name) {
            names.push(metric.name.clone());
        }
    }
    names
}

/// Words for what a database gives at a part of bare metal's rate: `latency.p99.at-70`.
fn offered_words(name: &str) -> Option<String> {
    let (what, percent) = name.rsplit_once(".at-")?;
    let at = format!("at {percent} % of bare metal's rate, ");
    match what.strip_prefix("latency.p") {
        Some(percentile) => Some(format!("{percentile}th percentile of latency {at}")),
        None => Some(format!("{what} {at}")),
    }
}

/// Words for what a test of the network gives.
fn net_words(part: &str) -> String {
    match part {
        "rate" => String::new(),
        "cpu" => "CPU time of the measured side, ".to_owned(),
        "cpu.host" => "the host's CPU time, ".to_owned(),
        "mean" => "mean time of a round trip, ".to_owned(),
        part => match part.strip_prefix('p') {
            Some(rank) if rank.chars().all(|c| c.is_ascii_digit() || c == '.') => {
                format!("{rank}th percentile of a round trip, ")
            }
            _ => format!("{part}, "),
        },
    }
}

/// The quantities of these results in a job: paired workloads first, then the single shots by request size.
pub(crate) fn shown(results: &Results) -> Vec<Shown> {
    shown_of(results, of_a_job)
}

/// The quantities of these results where they stand alone.
pub(crate) fn shown_alone(results: &Results) -> Vec<Shown> {
    shown_of(results, of_a_measurement)
}

fn shown_of(results: &Results, wanted: fn(&Results, &Workload) -> Vec<Wanted>) -> Vec<Shown> {
    let mut workloads: Vec<(&Workload, bool)> = Vec::new();
    for (purpose, paired) in [(Purpose::Pair, true), (Purpose::SameArm, true), (Purpose::SingleShot, false)] {
        for run in results.runs.iter().filter(|run| run.purpose == purpose) {
            if !workloads.iter().any(|(seen, _)| **seen == run.workload) {
                workloads.push((&run.workload, paired));
            }
        }
    }
    workloads.sort_by_key(|(workload, paired)| (!paired, request_size(workload)));
    let mut taken = BTreeSet::new();
    let mut shown = Vec::new();
    for (workload, paired) in workloads {
        for (name, part, words, once_is_enough) in wanted(results, workload) {
            let Some(unit) = unit(results, workload, &name).filter(|_| paired || once_is_enough) else { continue };
            let (symbol, scale) = show(unit, workload);
            let base = format!("{}-{part}", workload_id(workload));
            // Two workloads that differ in what the id leaves out (seconds, engine) still get ids of their own.
            let mut names = std::iter::once(base.clone()).chain((2u32..).map(|number| format!("{base}-{number}")));
            let Some(id) = names.find(|id| taken.insert(id.clone())) else { continue };
            let view = Metric {
                id,
                label: format!("{words}{}", workload.label()),
                unit: symbol.to_owned(),
                higher_is_better: unit.higher_is_better(),
                request_size: request_size(workload),
            };
            shown.push(Shown { view, workload: workload.clone(), name, scale });
        }
    }
    shown
}

/// The metric the headline speaks of: 4 KiB IOPS, else the first rate that was paired; in a lab that counts, the instructions
/// of a request, since its time is emulated.
pub(crate) fn headline(results: &Results, shown: &[Shown]) -> Option<String> {
    let paired = |metric: &&Shown| {
        results.runs.iter().any(|run| run.purpose == Purpose::Pair && run.workload == metric.workload)
    };
    if matches!(results.environment, Environment::Lab { .. }) {
        let of_four_kib = |metric: &&Shown| metric.view.request_size == Some(Bytes::from_kib(4));
        let counted = shown.iter().filter(|metric| metric.name == "work.instructions").filter(paired);
        if let Some(metric) = counted.clone().find(of_four_kib).or_else(|| counted.clone().next()) {
            return Some(metric.view.id.clone());
        }
    }
    let iops = shown.iter().filter(|metric| metric.name == "iops");
    iops.clone()
        .find(|metric| metric.view.request_size == Some(Bytes::from_kib(4)))
        .or_else(|| iops.clone().find(paired))
        .or_else(|| shown.iter().filter(|metric| metric.view.higher_is_better).find(paired))
        .map(|metric| metric.view.id.clone())
}

/// Unit on screen of a workload's value, and the factor to it: memory is measured in ns.
pub(crate) fn show(unit: Unit, workload: &Workload) -> (&'static str, f64) {
    match (unit, workload) {
        (Unit::Nanoseconds, Workload::MemoryLatency(_) | Workload::MemoryBandwidth(_)) => ("ns", 1.0),
        (Unit::ModelledNanoseconds, Workload::MemoryWork(_) | Workload::Jvm(_)) => (MODELLED, 1.0),
        _ => on_screen(unit),
    }
}

/// Unit on screen, and the factor to it (STYLE.md: MB/s is 10^6 bytes a second, as drives are sold).
pub(crate) fn on_screen(unit: Unit) -> (&'static str, f64) {
    match unit {
        Unit::Iops => ("IOPS", 1.0),
        Unit::BytesPerSecond => ("MB/s", 1e-6),
        Unit::Nanoseconds => ("µs", 1e-3),
        Unit::CpuNanosecondsPerIo => ("CPU µs/request", 1e-3),
        Unit::BitsPerSecond => ("Mbit/s", 1e-6),
        Unit::TransactionsPerSecond => ("trans/s", 1.0),
        Unit::LoadsPerSecond => ("loads/s", 1.0),
        Unit::CpuNanosecondsPerLoad => ("CPU ns/load", 1.0),
        Unit::CpuSecondsPerGigabit => ("CPU s/Gbit", 1.0),
        Unit::CpuNanosecondsPerTransaction => ("CPU µs/trans", 1e-3),
        Unit::CpuNanosecondsPerGigabit => ("CPU s/Gbit", 1e-9),
        Unit::PerIo => ("per request", 1.0),
        Unit::PerTransaction => ("per transaction", 1.0),
        Unit::PerGigabit => ("per Gbit", 1.0),
        Unit::PerLoad => ("per load", 1.0),
        Unit::ModelledNanoseconds => ("modelled µs", 1e-3),
        Unit::Share => ("%", 100.0),
        Unit::Distance => ("distance", 1.0),
        Unit::RunsPerHour => ("runs/h", 1.0),
        Unit::BusyPus => ("PUs", 1.0),
    }
}

fn unit(results: &Results, workload: &Workload, name: &str) -> Option<Unit> {
    results.runs.iter().filter(|run| run.workload == *workload).find_map(|run| match &run.outcome {
        Outcome::Measured { metrics, .. } => {
            metrics.iter().find(|metric| metric.name == name).map(|metric| metric.unit)
        }
        Outcome::Failed { .. } => None,
    })
}

fn request_size(workload: &Workload) -> Option<Bytes> {
    match workload {
        Workload::Fio(job) => Some(job.block_size),
        Workload::FileSystem(job) => Some(job.record),
        _ => None,
    }
}

fn workload_id(workload: &Workload) -> String {
    match workload {
        Workload::Fio(job) => fio_id(job),
        Workload::FileSystem(job) => format!("iozone-{}-{}k", job.file_system.name(), job.record.kib()),
        Workload::MemoryLatency(MemoryLatency(job)) => {
            format!("memory-latency-{}-{}", job.pattern.argument(), job.pages.argument())
        }
        Workload::MemoryBandwidth(MemoryBandwidth(job)) => format!("memory-bandwidth-{}", job.pages.argument()),
        other => other.id(),
    }
}

/// `fio-randrw-4k`: the share of reads and the queue depth are named where they are not the usual 50 % and 32.
fn fio_id(job: &FioJob) -> String {
    let share = if job.read_percent == 50 { String::new() } else { job.read_percent.to_string() };
    let depth = if job.queue_depth == 32 { String::new() } else { format!("-qd{}", job.queue_depth) };
    let size = match job.block_size.get() {
        bytes if bytes > 0 && bytes % 1024 == 0 => format!("{}k", bytes / 1024),
        bytes => bytes.to_string(),
    };
    let order = if job.order == Order::Random { "rand" } else { "seq" };
    format!("fio-{order}rw{share}-{size}{depth}")
}
