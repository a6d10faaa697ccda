//! One measured value with its unit.

use serde::{Deserialize, Serialize};

/// What a value counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unit {
    /// I/O operations per second.
    #[serde(rename = "IOPS")]
    Iops,
    /// Bytes per second.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// CPU nanoseconds per I/O operation.
    #[serde(rename = "CPU ns/IO")]
    CpuNanosecondsPerIo,
    /// Bits per second.
    #[serde(rename = "bit/s")]
    BitsPerSecond,
    /// Requests answered per second.
    #[serde(rename = "trans/s")]
    TransactionsPerSecond,
    /// Seconds of processor time for each gigabit moved.
    #[serde(rename = "CPU s/Gbit")]
    CpuSecondsPerGigabit,
    /// CPU nanoseconds per transaction.
    #[serde(rename = "CPU ns/trans")]
    CpuNanosecondsPerTransaction,
    /// CPU nanoseconds per gigabit moved.
    #[serde(rename = "CPU ns/Gbit")]
    CpuNanosecondsPerGigabit,
    /// Events per I/O operation.
    #[serde(rename = "1/IO")]
    PerIo,
    /// Events per transaction.
    #[serde(rename = "1/trans")]
    PerTransaction,
    /// Events per gigabit moved.
    #[serde(rename = "1/Gbit")]
    PerGigabit,
}

impl Unit {
    /// As shown.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::BytesPerSecond => "B/s",
            Self::Nanoseconds => "ns",
            Self::CpuNanosecondsPerIo => "CPU ns/IO",
            Self::BitsPerSecond => "bit/s",
            Self::TransactionsPerSecond => "trans/s",
            Self::CpuSecondsPerGigabit => "CPU s/Gbit",
            Self::CpuNanosecondsPerTransaction => "CPU ns/trans",
            Self::CpuNanosecondsPerGigabit => "CPU ns/Gbit",
            Self::PerIo => "1/IO",
            Self::PerTransaction => "1/trans",
            Self::PerGigabit => "1/Gbit",
        }
    }

    /// Whether a larger value is the better one.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Self::Iops | Self::BytesPerSecond | Self::BitsPerSecond | Self::TransactionsPerSecond)
    }
}

/// One value of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// What of the workload: `iops`, `latency.p99`, ….
    pub name: String,
    /// Unit.
    pub unit: Unit,
    /// Value, finite and positive.
    pub value: f64,
}

impl Metric {
    /// A metric, if the value can be one: finite and above zero (a rate or time of zero is a failed run, not a figure).
    pub fn new(name: &str, unit: Unit, value: f64) -> Option<Self> {
        (value.is_finite() && value > 0.0).then(|| Self { name: name.to_owned(), unit, value })
    }
}
