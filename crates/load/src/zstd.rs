//! Compression by zstd's own benchmark: processors, caches and memory, and no disk.
//!
//! `zstd -b` makes its input itself, compresses it over and over for as long as it is told, then decompresses it likewise
//! (zstd(1), "Benchmark mode"), so both sides do the same work without a file. Only the compression runs on all vCPUs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{At, Load, Measured, Named, WorksOn};
use crate::error::LoadError;
use crate::metric::{Metric, Unit};

/// What people call it.
pub(super) const NAMED: &[Named] = &[Named {
    word: "zstd",
    help: "Compression by zstd on all vCPUs: processors and memory, and no disk",
    sizes: &[],
    on: WorksOn::Processors,
    make: |shape| ZstdJob { seconds: shape.seconds, threads: shape.vcpus }.into(),
}];

/// How well it compresses: at zstd's fastest level its jobs are the smallest, so that a few vCPUs all have some.
const LEVEL: u32 = 1;

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZstdJob {
    /// Seconds of compression and of decompression together.
    pub seconds: u32,
    /// Threads that compress.
    pub threads: u32,
}

impl ZstdJob {
    /// Seconds of each half: whole ones, as zstd takes them.
    fn half(&self) -> u32 {
        self.seconds.div_ceil(2)
    }
}

impl Load for ZstdJob {
    fn id(&self) -> String {
        format!("zstd.level{LEVEL}.t{}", self.threads)
    }

    fn label(&self) -> String {
        format!("zstd, level {LEVEL}, {} {}", self.threads, if self.threads == 1 { "thread" } else { "threads" })
    }

    fn rate(&self) -> Option<String> {
        Some("bandwidth".to_owned())
    }

    fn command(&self, _: &At<'_>, _: u64) -> Vec<String> {
        let words =
            ["zstd", "-q", &format!("-b{LEVEL}"), &format!("-i{}", self.half()), &format!("-T{}", self.threads)];
        words.map(str::to_owned).to_vec()
    }

    fn length(&self) -> Option<Duration> {
        Some(Duration::from_secs(u64::from(self.half()) * 2))
    }

    fn cold(&self) -> bool {
        false
    }

    fn read(&self, output: &str) -> Result<Measured, LoadError> {
        read(output)
    }

    fn provenance(&self) -> Option<(String, String)> {
        Some(("zstd command".to_owned(), self.command(&At::probe(""), 0).join(" ")))
    }
}

/// Reads `-1  3154228 (3.170) 433.60 MB/s 2286.8 MB/s  Synthetic 50%`: compression, then decompression, 10^6 bytes of input a
/// second.
fn read(output: &str) -> Result<Measured, LoadError> {
    let unreadable = |why: &str| LoadError::Unreadable {
        what: "zstd's output".into(),
        why: why.into(),
        text: output.chars().take(300).collect(),
    };
    let mark = format!("-{LEVEL}");
    let mut lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let words =
        lines.find(|words| words.first() == Some(&mark.as_str())).ok_or_else(|| unreadable("no result in it"))?;
    let rates: Vec<f64> =
        words.windows(2).filter(|pair| pair[1] == "MB/s").filter_map(|pair| pair[0].parse().ok()).collect();
    let [compression, decompression] = rates[..] else { return Err(unreadable("not two figures in MB/s")) };
    let metric = |name, rate: f64| {
        let found = Metric::new(name, Unit::BytesPerSecond, rate * 1e6);
        found.ok_or_else(|| unreadable("a figure that is not a rate"))
    };
    // Its first line names its version: the guest's may be another than the host's.
    let version = output.lines().find_map(|line| line.strip_prefix("bench ")?.split_whitespace().next());
    Ok(Measured {
        metrics: vec![metric("bandwidth", compression)?, metric("bandwidth.decompression", decompression)?],
        notes: version.map(|version| format!("zstd {version}")).into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "bench 1.5.4 : input 10000000 bytes, 3 seconds, 0 KB blocks
-1      3154228 (3.170) 433.60 MB/s 2286.8 MB/s  Synthetic 50%
";

    #[test]
    fn both_rates_are_read_in_bytes() {
        let Measured { metrics, notes } = read(OUTPUT).unwrap();
        assert_eq!(notes, ["zstd 1.5.4"]);
        let values: Vec<(&str, f64)> = metrics.iter().map(|metric| (metric.name.as_str(), metric.value)).collect();
        assert_eq!(values, [("bandwidth", 433.60e6), ("bandwidth.decompression", 2286.8e6)]);
    }

    #[test]
    fn junk_is_an_error_and_never_a_figure() {
        let one = "-1 3154228 (3.170) 433.60 MB/s Synthetic 50%";
        let none = OUTPUT.replace("433.60", "0.00");
        let odd = OUTPUT.replace("433.60", "inf");
        for junk in ["", "bench 1.5.4 : input 10000000 bytes", one, &none, &odd, "-3 1 (1) 2 MB/s 3 MB/s"] {
            assert!(read(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn an_odd_length_is_rounded_up_to_two_equal_halves() {
        let job = ZstdJob { seconds: 5, threads: 2 };
        assert_eq!(job.command(&At::probe(""), 7), ["zstd", "-q", "-b1", "-i3", "-T2"]);
        assert_eq!(job.length(), Some(Duration::from_secs(6)));
    }
}
