//! What is run in every arm, identically: the same binary with the same arguments, bound to the same PUs.

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::file_set::FileJob;

/// One workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Workload {
    /// fio on a block device.
    Fio(FioJob),
    /// The IOzone set by fio, in a file system made on the device.
    FileSystem(FileJob),
    /// `nearmetal-probe memory latency`.
    MemoryLatency(MemoryJob),
    /// `nearmetal-probe memory bandwidth`.
    MemoryBandwidth(MemoryJob),
}

/// A job on a block device, direct, at a fixed queue depth: random 50/50 of 512 B to 8 KiB, as the first seed paper ran it,
/// or sequential of 2 to 64 KiB, as the second did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FioJob {
    /// Block size.
    pub block_size: Bytes,
    /// Percentage of reads.
    pub read_percent: u8,
    /// Requests in flight.
    pub queue_depth: u32,
    /// Submission engine inside the measured side: the same on bare metal and in the guest.
    pub engine: FioEngine,
    /// Measured seconds.
    pub seconds: u32,
    /// Seconds that run before measuring starts.
    pub ramp_seconds: u32,
    /// How much of the device is worked on, from its beginning; `None`: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<Bytes>,
    /// Order of the requests.
    #[serde(default, skip_serializing_if = "Order::is_random")]
    pub order: Order,
}

/// Order of a job's requests over the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Anywhere.
    #[default]
    Random,
    /// One after the other.
    Sequential,
}

impl Order {
    fn is_random(&self) -> bool {
        *self == Self::Random
    }
}

/// fio's engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FioEngine {
    /// Linux AIO.
    Libaio,
    /// io_uring.
    IoUring,
}

/// A memory job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryJob {
    /// Buffer size.
    pub size: Bytes,
    /// Page size asked for on the measured side.
    pub pages: ProbePages,
    /// Access pattern (latency only).
    pub pattern: Pattern,
}

/// Page size the probe asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProbePages {
    /// 4 KiB pages, transparent huge pages refused for the buffer.
    #[serde(rename = "4k")]
    Small,
    /// Transparent huge pages asked for.
    #[serde(rename = "thp")]
    Transparent,
}

/// How the probe walks memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Random inside groups of 64 pages and over the groups: the cost of cache and memory.
    Groups,
    /// One access per page: adds the cost of translation.
    Page,
}

impl ProbePages {
    /// The probe's argument.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Small => "4k",
            Self::Transparent => "thp",
        }
    }
}

impl Pattern {
    /// The probe's argument.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Groups => "groups",
            Self::Page => "page",
        }
    }
}

impl FioJob {
    /// The first seed's job at one block size.
    pub fn first_seed(block_size: Bytes, seconds: u32, ramp_seconds: u32) -> Self {
        Self {
            block_size,
            read_percent: 50,
            queue_depth: 32,
            engine: FioEngine::Libaio,
            seconds,
            ramp_seconds,
            span: None,
            order: Order::Random,
        }
    }

    /// The second seed's job at one block size: sequential, all reads or all writes. It names no queue depth; the first
    /// seed's is used, so that the two compare.
    pub fn second_seed(block_size: Bytes, reads: bool, seconds: u32, ramp_seconds: u32) -> Self {
        Self {
            read_percent: if reads { 100 } else { 0 },
            order: Order::Sequential,
            ..Self::first_seed(block_size, seconds, ramp_seconds)
        }
    }

    /// fio's arguments. `seed` is the same on both sides of a pair and differs between pairs.
    pub fn arguments(&self, device: &str, seed: u64) -> Vec<String> {
        let engine = match self.engine {
            FioEngine::Libaio => "libaio",
            FioEngine::IoUring => "io_uring",
        };
        let mut arguments: Vec<String> =
            ["--name=nearmetal", "--direct=1", "--numjobs=1", "--time_based", "--norandommap", "--refill_buffers"]
                .map(str::to_owned)
                .to_vec();
        // A job that only reads opens the device for nothing else: it may hold a user's data.
        let order = if self.order == Order::Random { "rand" } else { "" };
        match self.read_percent {
            100 => arguments.extend([format!("--rw={order}read"), "--readonly".to_owned()]),
            0 => arguments.push(format!("--rw={order}write")),
            percent => arguments.extend([format!("--rw={order}rw"), format!("--rwmixread={percent}")]),
        }
        arguments.extend([format!("--filename={device}")]);
        arguments.extend(self.span.map(|span| format!("--size={}", span.get())));
        arguments.extend([
            format!("--bs={}", self.block_size.get()),
            format!("--ioengine={engine}"),
            format!("--iodepth={}", self.queue_depth),
            format!("--runtime={}", self.seconds),
            format!("--ramp_time={}", self.ramp_seconds),
            format!("--randseed={seed}"),
            "--group_reporting".to_owned(),
            "--lat_percentiles=1".to_owned(),
            "--percentile_list=50:90:99:99.9".to_owned(),
            "--output-format=json".to_owned(),
        ]);
        arguments
    }
}

impl Workload {
    /// A short id, stable over versions: the first part of every metric's id.
    pub fn id(&self) -> String {
        match self {
            Self::Fio(job) => {
                let order = if job.order == Order::Random { "rand" } else { "seq" };
                format!("fio.{order}rw{}.qd{}.{}", job.read_percent, job.queue_depth, job.block_size.get())
            }
            Self::FileSystem(job) => {
                format!("iozone.{}.{}.t{}.{}", job.file_system.name(), job.record.get(), job.threads, job.total.get())
            }
            Self::MemoryLatency(job) => {
                format!("memory.latency.{}.{}", job.pattern.argument(), job.pages.argument())
            }
            Self::MemoryBandwidth(job) => format!("memory.bandwidth.{}", job.pages.argument()),
        }
    }

    /// What a person calls it.
    pub fn label(&self) -> String {
        match self {
            Self::Fio(job) => {
                let order = if job.order == Order::Random { "random" } else { "sequential" };
                let what = match job.read_percent {
                    100 => "read".to_owned(),
                    0 => "write".to_owned(),
                    percent => format!("{percent}/{} read/write", 100 - percent.min(100)),
                };
                format!("{} {order} {what}, queue depth {}", job.block_size, job.queue_depth)
            }
            Self::FileSystem(job) => format!(
                "IOzone set on {}, {} records, {} in {} files",
                job.file_system.name(),
                job.record,
                job.total,
                job.threads
            ),
            Self::MemoryLatency(job) => {
                format!("memory latency, {} pages, pattern {}", job.pages.argument(), job.pattern.argument())
            }
            Self::MemoryBandwidth(job) => format!("memory bandwidth, {} pages", job.pages.argument()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_get_the_same_arguments_but_for_the_device() {
        let job = FioJob::first_seed(Bytes::from_kib(4), 5, 1);
        let (bare, guest) = (job.arguments("/dev/a", 7), job.arguments("/dev/b", 7));
        let differing: Vec<_> = bare.iter().zip(&guest).filter(|(left, right)| left != right).collect();
        assert_eq!(differing.len(), 1);
        assert!(bare.contains(&"--direct=1".to_owned()) && bare.contains(&"--bs=4096".to_owned()));
    }

    #[test]
    fn a_job_that_reads_cannot_write() {
        let job = FioJob { read_percent: 100, ..FioJob::first_seed(Bytes::from_kib(4), 5, 1) };
        let arguments = job.arguments("/dev/a", 7);
        assert!(arguments.contains(&"--readonly".to_owned()) && arguments.contains(&"--rw=randread".to_owned()));
        let job = FioJob::first_seed(Bytes::from_kib(4), 5, 1);
        assert!(!job.arguments("/dev/a", 7).iter().any(|argument| argument == "--readonly"));
    }

    #[test]
    fn a_sequential_job_is_told_so_and_has_an_id_of_its_own() {
        let (reads, writes) = (true, false);
        let job = |reads| FioJob::second_seed(Bytes::from_kib(64), reads, 5, 1);
        assert!(job(reads).arguments("/dev/a", 7).contains(&"--rw=read".to_owned()));
        assert!(job(reads).arguments("/dev/a", 7).contains(&"--readonly".to_owned()));
        assert!(job(writes).arguments("/dev/a", 7).contains(&"--rw=write".to_owned()));
        let mixed = FioJob { read_percent: 50, ..job(reads) };
        assert!(mixed.arguments("/dev/a", 7).contains(&"--rw=rw".to_owned()));
        let ids = [Workload::Fio(job(reads)), Workload::Fio(job(writes)), Workload::Fio(mixed)].map(|work| work.id());
        assert_eq!(ids, ["fio.seqrw100.qd32.65536", "fio.seqrw0.qd32.65536", "fio.seqrw50.qd32.65536"]);
        assert_eq!(Workload::Fio(job(writes)).label(), "64 KiB sequential write, queue depth 32");
    }

    #[test]
    fn a_job_of_an_older_file_is_random() {
        let text = serde_json::to_string(&FioJob::first_seed(Bytes::from_kib(4), 5, 1)).unwrap();
        assert!(!text.contains("order"));
        assert_eq!(serde_json::from_str::<FioJob>(&text).unwrap().order, Order::Random);
    }

    #[test]
    fn ids_tell_workloads_apart() {
        let ids: std::collections::BTreeSet<_> =
            [512, 1024, 4096].map(|size| Workload::Fio(FioJob::first_seed(Bytes::new(size), 5, 1)).id()).into();
        assert_eq!(ids.len(), 3);
        assert!(ids.contains("fio.randrw50.qd32.4096"));
    }
}
