//! fio on a block device: the job, its arguments, and its JSON, read as what it is: the output of a program that ran in a
//! guest.

use std::time::Duration;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{At, Load, Measured, Named, Window, WorksOn};
use crate::cost::{Each, Middle};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

/// Block sizes of the first seed paper's random I/O figure.
const RANDOM_SIZES: &[u64] = &[512, 1024, 2048, 4096, 8192];
/// Block sizes of the second seed's sequential reads and writes.
const SEQUENTIAL_SIZES: &[u64] = &[2048, 4096, 8192, 16_384, 32_768, 65_536];

/// What people call these jobs.
pub(super) const NAMED: &[Named] = &[
    Named {
        word: "random",
        help: "Reads and writes, half each, anywhere on the device",
        sizes: RANDOM_SIZES,
        on: WorksOn::Blocks,
        make: |shape| FioJob::first_seed(shape.size, shape.seconds, shape.ramp).into(),
    },
    Named {
        word: "random-read",
        help: "Reads anywhere on the device",
        sizes: RANDOM_SIZES,
        on: WorksOn::Blocks,
        make: |shape| FioJob { read_percent: 100, ..FioJob::first_seed(shape.size, shape.seconds, shape.ramp) }.into(),
    },
    Named {
        word: "sequential-read",
        help: "Reads from beginning to end",
        sizes: SEQUENTIAL_SIZES,
        on: WorksOn::Blocks,
        make: |shape| FioJob::second_seed(shape.size, true, shape.seconds, shape.ramp).into(),
    },
    Named {
        word: "sequential-write",
        help: "Writes from beginning to end",
        sizes: SEQUENTIAL_SIZES,
        on: WorksOn::Blocks,
        make: |shape| FioJob::second_seed(shape.size, false, shape.seconds, shape.ramp).into(),
    },
];

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

/// fio's argument that names one file. fio takes a colon for the end of a name unless a backslash stands before it (HOWTO,
/// `filename`).
pub fn fio_filename(path: &str) -> String {
    format!("--filename={}", path.replace(':', "\\:"))
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
        arguments.push(fio_filename(device));
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

impl Load for FioJob {
    fn id(&self) -> String {
        let order = if self.order == Order::Random { "rand" } else { "seq" };
        format!("fio.{order}rw{}.qd{}.{}", self.read_percent, self.queue_depth, self.block_size.get())
    }

    fn label(&self) -> String {
        let order = if self.order == Order::Random { "random" } else { "sequential" };
        let what = match self.read_percent {
            100 => "read".to_owned(),
            0 => "write".to_owned(),
            percent => format!("{percent}/{} read/write", 100 - percent.min(100)),
        };
        format!("{} {order} {what}, queue depth {}", self.block_size, self.queue_depth)
    }

    fn rate(&self) -> Option<String> {
        Some("iops".to_owned())
    }

    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        std::iter::once("fio".to_owned()).chain(self.arguments(at.device, seed)).collect()
    }

    fn length(&self) -> Option<Duration> {
        Some(Duration::from_secs(u64::from(self.seconds + self.ramp_seconds)))
    }

    fn middle(&self) -> Option<(Middle, Each)> {
        Some((Middle::of(self), Each::Io))
    }

    fn writes(&self) -> bool {
        self.read_percent != 100
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        Ok(Measured { metrics: metrics(output)?, notes: vec![] })
    }

    fn window(&self, output: &str, ahead: f64) -> Result<Window, LoadError> {
        super::window::of_fio(output, ahead)
    }

    fn provenance(&self) -> Option<(String, String)> {
        Some(("fio arguments".to_owned(), self.arguments("DEVICE", 1).join(" ")))
    }
}

/// The largest output looked at; fio's JSON for one job is about 10 kB.
const LIMIT: usize = 4 << 20;

/// Reads one run's metrics. Fails when fio reported an error, did no I/O, or the text is not fio's.
///
/// Format: fio's HOWTO, "output-format=json"; `lat_ns` percentiles by `lat_percentiles=1`.
pub(crate) fn metrics(output: &str) -> Result<Vec<Metric>, LoadError> {
    let unreadable = |why: &str| LoadError::Unreadable {
        what: "fio's output".into(),
        why: why.into(),
        text: output.chars().take(300).collect(),
    };
    if output.len() > LIMIT {
        return Err(unreadable("it is longer than 4 MiB"));
    }
    // fio prints warnings before the JSON on some builds.
    let start = output.find('{').ok_or_else(|| unreadable("no JSON in it"))?;
    let document: Value = serde_json::from_str(&output[start..]).map_err(|error| unreadable(&error.to_string()))?;
    let job = document.pointer("/jobs/0").ok_or_else(|| unreadable("no job in it"))?;
    let number = |pointer: &str| job.pointer(pointer).and_then(Value::as_f64);
    match job.get("error").and_then(Value::as_i64) {
        Some(0) => {}
        Some(code) => {
            return Err(LoadError::WorkloadFailed { what: "fio".into(), why: format!("job error {code}") });
        }
        None => return Err(unreadable("no error field in the job")),
    }
    let sum = |name: &str| Some(number(&format!("/read/{name}"))? + number(&format!("/write/{name}"))?);
    let iops = sum("iops").ok_or_else(|| unreadable("no read and write iops"))?;
    let bandwidth = sum("bw_bytes").ok_or_else(|| unreadable("no bw_bytes"))?;
    let ios = sum("total_ios").unwrap_or(0.0);
    let mut metrics =
        vec![Metric::new("iops", Unit::Iops, iops), Metric::new("bandwidth", Unit::BytesPerSecond, bandwidth)];
    for (name, percentile) in [("p50", "50.000000"), ("p99", "99.000000"), ("p99.9", "99.900000")] {
        for direction in ["read", "write"] {
            let value = number(&format!("/{direction}/lat_ns/percentile/{percentile}"));
            metrics.push(
                value.and_then(|value| Metric::new(&format!("latency.{direction}.{name}"), Unit::Nanoseconds, value)),
            );
        }
    }
    for direction in ["read", "write"] {
        let value = number(&format!("/{direction}/lat_ns/mean"));
        metrics
            .push(value.and_then(|value| Metric::new(&format!("latency.{direction}.mean"), Unit::Nanoseconds, value)));
    }
    if let (Some(user), Some(system), Some(runtime)) = (number("/usr_cpu"), number("/sys_cpu"), number("/job_runtime"))
    {
        if ios > 0.0 {
            let cpu_nanoseconds = (user + system) / 100.0 * runtime * 1e6;
            metrics.push(Metric::new("cpu", Unit::CpuNanosecondsPerIo, cpu_nanoseconds / ios));
        }
    }
    let metrics: Vec<Metric> = metrics.into_iter().flatten().collect();
    if metrics.iter().any(|metric| metric.name == "iops") {
        Ok(metrics)
    } else {
        Err(LoadError::WorkloadFailed { what: "fio".into(), why: "it did no I/O".into() })
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
    fn a_colon_in_a_path_does_not_end_it() {
        let arguments = FioJob::first_seed(Bytes::from_kib(4), 5, 1).arguments("/dev/disk/by-path/ip-10.0.0.1:3260", 7);
        assert!(arguments.contains(&r"--filename=/dev/disk/by-path/ip-10.0.0.1\:3260".to_owned()), "{arguments:?}");
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
        let ids = [crate::Workload::Fio(job(reads)), crate::Workload::Fio(job(writes)), crate::Workload::Fio(mixed)]
            .map(|work| work.id());
        assert_eq!(ids, ["fio.seqrw100.qd32.65536", "fio.seqrw0.qd32.65536", "fio.seqrw50.qd32.65536"]);
        assert_eq!(crate::Workload::Fio(job(writes)).label(), "64 KiB sequential write, queue depth 32");
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
            [512, 1024, 4096].map(|size| crate::Workload::Fio(FioJob::first_seed(Bytes::new(size), 5, 1)).id()).into();
        assert_eq!(ids.len(), 3);
        assert!(ids.contains("fio.randrw50.qd32.4096"));
    }

    fn output(error: i64, iops: f64) -> String {
        format!(
            r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{{"fio version":"fio-3.39","jobs":[{{"error":{error},"usr_cpu":10.0,"sys_cpu":15.0,"job_runtime":5000,
"read":{{"iops":{iops},"bw_bytes":4096000,"total_ios":5000,"lat_ns":{{"mean":2000.5,"percentile":{{"50.000000":1500,"99.000000":9000}}}}}},
"write":{{"iops":{iops},"bw_bytes":4096000,"total_ios":5000,"lat_ns":{{"mean":2100.5,"percentile":{{"50.000000":1600,"99.000000":9100}}}}}}}}]}}"#
        )
    }

    #[test]
    fn a_run_gives_rates_latencies_and_cpu() {
        let metrics = metrics(&output(0, 1000.0)).unwrap();
        let value = |name: &str| metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value);
        assert_eq!(value("iops"), Some(2000.0));
        assert_eq!(value("bandwidth"), Some(8_192_000.0));
        assert_eq!(value("latency.write.p99"), Some(9100.0));
        assert_eq!(value("latency.read.p99.9"), None, "a percentile fio did not print is absent, not zero");
        assert_eq!(value("cpu"), Some(125_000.0));
    }

    #[test]
    fn a_failed_run_is_an_error_not_a_zero() {
        assert!(metrics(&output(5, 1000.0)).is_err());
        assert!(metrics(&output(0, 0.0)).is_err());
        for junk in
            ["", "{", "{}", "{\"jobs\":[]}", "{\"jobs\":[{}]}", "{\"jobs\":[{\"error\":0}]}", "fio: no such file"]
        {
            assert!(metrics(junk).is_err(), "{junk}");
        }
    }
}
