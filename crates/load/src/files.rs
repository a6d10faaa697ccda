//! The IOzone set over a file system, by fio: the steps of IOzone's own order, each to its end, on a file system made afresh.
//!
//! The fourth seed ran IOzone 3.414 with direct I/O and 8 threads, each with a file of its own, on XFS. fio takes its place
//! since it is the one program that measures everything here; what each step does is IOzone's (its manual, "Definitions of
//! the tests", <https://www.iozone.org/docs/IOzone_msword_98.pdf>), and how fio is told is written at [`FileStep`].

use std::time::Duration;

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{At, Load, Measured, Named, WorksOn};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

/// Records from one read of a stride to the next (IOzone's default, `-j 17`).
const STRIDE: u64 = 17;
/// Threads, as the fourth seed ran it.
const THREADS: u32 = 8;

/// Size of one read or write: large enough that a file system's own work per request does not hide the disk's, small enough
/// for many of them.
const RECORDS: &[u64] = &[65_536];

/// What people call these jobs.
pub(super) const NAMED: &[Named] = &[
    Named {
        word: "iozone-ext4",
        help: "The steps of IOzone, by fio: write, rewrite, read, reread, random read and write, stride read of files with 8 threads, on ext4",
        sizes: RECORDS,
        on: WorksOn::Files,
        make: |shape| FileJob::fourth_seed(FileSystem::Ext4, shape.size, shape.span).into(),
    },
    Named {
        word: "iozone-xfs",
        help: "The same on XFS",
        sizes: RECORDS,
        on: WorksOn::Files,
        make: |shape| FileJob::fourth_seed(FileSystem::Xfs, shape.size, shape.span).into(),
    },
];

/// A file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl FileSystem {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// The smallest device one is made on: mkfs.xfs refuses less than 300 MiB since xfsprogs 5.19; ext4 needs room for its
    /// journal and tables.
    pub fn smallest(self) -> Bytes {
        match self {
            Self::Ext4 => Bytes::from_mib(32),
            Self::Xfs => Bytes::from_mib(300),
        }
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileStep {
    /// New files: blocks are allocated as they are written. `rw=write` with `fallocate=none`, on an empty file system.
    Write,
    /// The same files again, blocks in place: `rw=write` on files that have their size.
    Rewrite,
    /// From beginning to end: `rw=read`.
    Read,
    /// Once more. With O_DIRECT there is no cache of the guest's, so it differs by what host and drive keep.
    Reread,
    /// Each record once, in random order: `rw=randread` with fio's map of what was read.
    RandomRead,
    /// Likewise: `rw=randwrite`.
    RandomWrite,
    /// Every 17th record, once over the files' length: `rw=read:` with a hole of 16 records after each. fio begins anew at the end of a
    /// file until it has read as much as the file holds, so it is told how much one pass is.
    Stride,
}

impl FileStep {
    /// In the order they run: IOzone's.
    pub const ALL: [Self; 7] =
        [Self::Write, Self::Rewrite, Self::Read, Self::Reread, Self::RandomRead, Self::RandomWrite, Self::Stride];

    /// The word in names of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Rewrite => "rewrite",
            Self::Read => "read",
            Self::Reread => "reread",
            Self::RandomRead => "random-read",
            Self::RandomWrite => "random-write",
            Self::Stride => "stride-read",
        }
    }

    /// fio's, for files of `each` bytes.
    fn arguments(self, record: Bytes, each: u64) -> Vec<String> {
        let rw = match self {
            Self::Write | Self::Rewrite => "write".to_owned(),
            Self::Read | Self::Reread => "read".to_owned(),
            Self::RandomRead => "randread".to_owned(),
            Self::RandomWrite => "randwrite".to_owned(),
            Self::Stride => format!("read:{}", record.times(STRIDE - 1).get()),
        };
        let mut arguments = vec![format!("--name={}", self.name()), format!("--rw={rw}")];
        if self != Self::Write {
            // After the step before, and counted apart from it.
            arguments.push("--stonewall".to_owned());
        }
        if matches!(self, Self::Write | Self::Rewrite | Self::RandomWrite) {
            // A write is over when it is on the drive (IOzone's -e).
            arguments.push("--end_fsync=1".to_owned());
        }
        if self == Self::Stride {
            let records = (each / record.get()).div_ceil(STRIDE);
            arguments.push(format!("--io_size={}", records * record.get()));
        }
        arguments
    }
}

/// The set on one file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileJob {
    /// Which.
    pub file_system: FileSystem,
    /// Size of one read or write.
    pub record: Bytes,
    /// Size of all files together.
    pub total: Bytes,
    /// Threads, each with a file.
    pub threads: u32,
}

impl FileJob {
    /// The set as the fourth seed ran it, with files of this size together.
    pub fn fourth_seed(file_system: FileSystem, record: Bytes, total: Bytes) -> Self {
        Self { file_system, record, total, threads: THREADS }
    }

    /// fio's arguments; it runs in the file system's root. `seed` is the same on both sides of a pair.
    pub fn arguments(&self, seed: u64) -> Vec<String> {
        let each = (self.total.get() / u64::from(self.threads.max(1)) / self.record.get()).max(1) * self.record.get();
        let mut arguments: Vec<String> = [
            "--name=global",
            "--filename_format=file.$jobnum",
            "--direct=1",
            // One request at a time from each thread, as IOzone's: read(2), write(2) at a place.
            "--ioengine=psync",
            "--thread",
            "--group_reporting",
            "--fallocate=none",
            // Each step lays out its files when it begins. fio does so for all of them before the first otherwise, and writes those
            // that are to be read: the first step would find its blocks in place.
            "--create_serialize=0",
            "--refill_buffers",
            "--output-format=json",
        ]
        .map(str::to_owned)
        .to_vec();
        arguments.extend([
            format!("--bs={}", self.record.get()),
            format!("--size={each}"),
            format!("--numjobs={}", self.threads),
            format!("--randseed={seed}"),
        ]);
        arguments.extend(FileStep::ALL.into_iter().flat_map(|step| step.arguments(self.record, each)));
        arguments
    }

    /// Room for the files, a quarter for tables and journal, and no less than the file system takes.
    pub fn room(&self) -> Bytes {
        Bytes::new(self.total.get() / 4 * 5).max(self.file_system.smallest())
    }
}

/// The longest the set may take: it runs to its end, however slow the drive.
const LIMIT: Duration = Duration::from_secs(1800);

impl Load for FileJob {
    fn id(&self) -> String {
        format!("iozone.{}.{}.t{}.{}", self.file_system.name(), self.record.get(), self.threads, self.total.get())
    }

    fn label(&self) -> String {
        format!(
            "IOzone set on {}, {} records, {} in {} files",
            self.file_system.name(),
            self.record,
            self.total,
            self.threads
        )
    }

    fn rate(&self) -> Option<String> {
        Some("iops".to_owned())
    }

    /// The probe makes the file system on the device, and fio runs in it.
    fn command(&self, at: &At<'_>, seed: u64) -> Vec<String> {
        let head = [at.probe, "file-system", "--device", at.device, "--kind", self.file_system.name(), "--", "fio"];
        head.into_iter().map(str::to_owned).chain(self.arguments(seed)).collect()
    }

    fn length(&self) -> Option<Duration> {
        None
    }

    fn limit(&self) -> Duration {
        LIMIT
    }

    fn writes(&self) -> bool {
        true
    }

    fn files(&self) -> Option<(FileSystem, Bytes)> {
        Some((self.file_system, self.room()))
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        measured(output)
    }

    fn provenance(&self) -> Option<(String, String)> {
        Some(("fio arguments".to_owned(), self.arguments(1).join(" ")))
    }
}

/// Reads a run: `iops` is the operations of the set by the time its steps took, and every step has its own `iops.NAME` and
/// `bandwidth.NAME`.
///
/// # Errors
/// A step failed, did nothing, or is missing.
fn measured(output: &str) -> Result<Measured, LoadError> {
    let unreadable = |why: String| LoadError::Unreadable {
        what: "fio's output".into(),
        why,
        text: output.chars().take(300).collect(),
    };
    let start = output.find('{').ok_or_else(|| unreadable("no JSON in it".to_owned()))?;
    let document: Value = serde_json::from_str(&output[start..]).map_err(|error| unreadable(error.to_string()))?;
    let jobs = document.get("jobs").and_then(Value::as_array).ok_or_else(|| unreadable("no jobs in it".to_owned()))?;
    let (mut metrics, mut operations, mut seconds) = (Vec::new(), 0.0, 0.0);
    for step in FileStep::ALL {
        let name = step.name();
        let job = jobs.iter().find(|job| job.get("jobname").and_then(Value::as_str) == Some(name));
        let job = job.ok_or_else(|| unreadable(format!("no step `{name}` in it")))?;
        if job.get("error").and_then(Value::as_i64) != Some(0) {
            return Err(LoadError::WorkloadFailed {
                what: format!("fio's step {name}"),
                why: "see fio's error".into(),
            });
        }
        let sum = |field: &str| {
            let one = |side: &str| job.pointer(&format!("/{side}/{field}")).and_then(Value::as_f64).unwrap_or(0.0);
            one("read") + one("write")
        };
        let (rate, ios) = (sum("iops"), sum("total_ios"));
        let nothing = || LoadError::WorkloadFailed { what: format!("fio's step {name}"), why: "it did no I/O".into() };
        metrics.push(Metric::new(&format!("iops.{name}"), Unit::Iops, rate).ok_or_else(nothing)?);
        metrics.extend(Metric::new(&format!("bandwidth.{name}"), Unit::BytesPerSecond, sum("bw_bytes")));
        (operations, seconds) = (operations + ios, seconds + ios / rate);
    }
    metrics.extend(Metric::new("iops", Unit::Iops, operations / seconds));
    Ok(Measured { metrics, notes: vec![] })
}

/// Why a file system cannot be measured by what the probe said of one side (`file-systems`); `None` if it can.
pub fn missing_file_system(output: &str, wanted: FileSystem) -> Option<String> {
    let Ok(document) = serde_json::from_str::<Value>(output) else {
        return Some("the probe's answer cannot be read".to_owned());
    };
    let list = |name: &str| document.pointer(&format!("/result/{name}")).and_then(Value::as_array);
    let name = wanted.name();
    if list("usable").is_some_and(|usable| usable.iter().any(|one| one.as_str() == Some(name))) {
        return None;
    }
    let why = list("missing").and_then(|lines| {
        lines.iter().filter_map(Value::as_str).find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    });
    Some(why.unwrap_or("the probe does not know it").chars().take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> FileJob {
        FileJob::fourth_seed(FileSystem::Xfs, Bytes::from_kib(64), Bytes::from_mib(64))
    }

    fn output(change: impl Fn(&str) -> (f64, f64, i64)) -> String {
        let one = |step: FileStep| {
            let (iops, ios, error) = change(step.name());
            format!(
                r#"{{"jobname":"{}","error":{error},"read":{{"iops":{iops},"total_ios":{ios},"bw_bytes":1000}},"write":{{"iops":0,"total_ios":0,"bw_bytes":0}}}}"#,
                step.name()
            )
        };
        format!("fio: note\n{{\"jobs\":[{}]}}", FileStep::ALL.map(one).join(","))
    }

    #[test]
    fn every_step_runs_after_the_one_before_on_the_same_files() {
        let arguments = job().arguments(7);
        let names: Vec<_> = arguments.iter().filter_map(|argument| argument.strip_prefix("--name=")).collect();
        let expected = ["global", "write", "rewrite", "read", "reread", "random-read", "random-write", "stride-read"];
        assert_eq!(names, expected);
        assert_eq!(arguments.iter().filter(|argument| *argument == "--stonewall").count(), 6);
        assert!(arguments.contains(&"--size=8388608".to_owned()), "8 files are 64 MiB: {arguments:?}");
        assert!(arguments.contains(&"--rw=read:1048576".to_owned()), "16 records are left out: {arguments:?}");
        assert!(
            arguments.contains(&"--create_serialize=0".to_owned()),
            "nothing is laid out before its step: {arguments:?}"
        );
        // 128 records each: 0, 17, …, 119.
        assert_eq!(
            arguments.iter().filter(|argument| *argument == "--io_size=524288").count(),
            1,
            "one pass: {arguments:?}"
        );
        assert!(!arguments.iter().any(|argument| argument.contains("filename=")), "nothing but its own files");
        let command = job().command(&At { device: "/dev/vda", ..At::probe("/p") }, 7);
        assert_eq!(&command[..8], ["/p", "file-system", "--device", "/dev/vda", "--kind", "xfs", "--", "fio"]);
    }

    #[test]
    fn the_set_counts_by_the_time_its_steps_took() {
        // 100 operations at 100 a second and 600 at 600: 7 steps of a second.
        let measured = measured(&output(|name| if name == "write" { (100.0, 100.0, 0) } else { (600.0, 600.0, 0) }));
        let metrics = measured.unwrap().metrics;
        let value = |name: &str| metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value);
        assert_eq!(value("iops.write"), Some(100.0));
        assert_eq!(value("iops.stride-read"), Some(600.0));
        assert!((value("iops").unwrap() - 3700.0 / 7.0).abs() < 1e-9);
    }

    #[test]
    fn a_step_that_failed_or_is_missing_fails_the_run() {
        assert!(measured(&output(|name| (1.0, 1.0, i64::from(name == "reread")))).is_err());
        assert!(measured(&output(|name| if name == "read" { (0.0, 0.0, 0) } else { (1.0, 1.0, 0) })).is_err());
        assert!(measured(&output(|_| (1.0, 1.0, 0)).replace("stride-read", "other")).is_err());
        for junk in ["", "{", "{}", "{\"jobs\":[]}"] {
            assert!(measured(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn what_one_side_lacks_is_said_in_its_words() {
        let output = r#"{"result":{"usable":["ext4"],"missing":["xfs: there is no mkfs.xfs"]}}"#;
        assert_eq!(missing_file_system(output, FileSystem::Ext4), None);
        assert_eq!(missing_file_system(output, FileSystem::Xfs).as_deref(), Some("there is no mkfs.xfs"));
        assert!(missing_file_system("nonsense", FileSystem::Ext4).is_some());
    }
}
