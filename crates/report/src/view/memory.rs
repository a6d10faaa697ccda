//! Memory latency and bandwidth over page sizes.

use nearmetal_units::PageSize;
use serde::{Deserialize, Serialize};

/// Memory figures of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryTable {
    /// What the figures are worth: "the lab's TLB is emulated: no target".
    pub label: Option<String>,
    /// One per side and page-size pair.
    pub rows: Vec<MemoryRow>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryRow {
    /// Bare metal or guest.
    pub side: MemorySide,
    /// Access pattern: "one load per page over 64 MiB".
    pub pattern: String,
    /// Pages the program uses.
    pub page: PageSize,
    /// Pages that back the guest's memory; `None` on bare metal.
    pub backing: Option<PageSize>,
    /// Median latency of one load, nanoseconds.
    pub median_ns: Option<f64>,
    /// 99th percentile, nanoseconds.
    pub p99_ns: Option<f64>,
    /// Minimum, nanoseconds.
    pub minimum_ns: Option<f64>,
    /// Read bandwidth, MB/s (10^6 bytes).
    pub bandwidth_mb_s: Option<f64>,
}

/// Which side a memory figure is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemorySide {
    /// The slice without a guest.
    Bare,
    /// Inside the guest.
    Guest,
}
