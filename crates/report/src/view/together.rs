//! The guests of a measurement: where each ran, and what several did at once.

use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};
use serde::{Deserialize, Serialize};

use super::RatioView;

/// A guest and the slice it was compared on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenantView {
    /// Domain.
    pub guest: String,
    /// The vCPUs' PUs: what bare metal is confined to.
    pub cpus: CpuSet,
    /// Nodes of its memory.
    pub nodes: NodeSet,
    /// Page size behind its memory; `None` leaves it to the kernel.
    pub page_size: Option<PageSize>,
    /// PUs of its other threads that are not in the slice.
    pub cpus_on_top: CpuSet,
    /// Device or port it worked on.
    pub device: String,
    /// Size of each arm's region of it; `None` where there are no regions.
    pub region: Option<Bytes>,
    /// Affinity of its threads as read from /proc, one line each; empty if the arms hold it.
    pub placement: Vec<String>,
}

/// What several guests at once did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TogetherView {
    /// What each ran.
    pub load: String,
    /// Unit of every rate: `IOPS`, `Mbit/s`.
    pub unit: String,
    /// One for each number of guests, the fewest first.
    pub counts: Vec<CountRow>,
    /// Median of what the machine and the other end did with all at once, without slices.
    pub ceiling: Option<f64>,
    /// The least part of a counted sample during which all ran, from 0 to 1.
    pub least_overlap: Option<f64>,
    /// The least that counts.
    pub overlap_limit: Option<f64>,
    /// How far the guests' clocks may be apart, ms.
    pub clocks_within: Option<f64>,
}

/// So many guests at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountRow {
    /// How many.
    pub count: u32,
    /// All of them over all bare slices; `None` with fewer than two pairs.
    pub ratio: Option<RatioView>,
    /// Whether that difference may be claimed: its interval leaves 1 out and lies beyond the noise floor, where one was measured.
    #[serde(default)]
    pub beyond_noise: bool,
    /// Mean of the guests' rates together.
    pub guests_rate: Option<f64>,
    /// Mean of the bare slices' rates together.
    pub bare_rate: Option<f64>,
    /// Times what one guest does; `None` if one alone was not measured.
    pub guests_gain: Option<f64>,
    /// Times what one bare slice does.
    pub bare_gain: Option<f64>,
    /// Whether the rate may be the other end's; `None` without a ceiling.
    pub peer_bound: Option<bool>,
    /// Each guest against its own bare slice in the same rounds.
    pub shares: Vec<GuestShare>,
}

/// One guest among several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestShare {
    /// Domain.
    pub guest: String,
    /// Over its bare slice; `None` with fewer than two pairs.
    pub ratio: Option<RatioView>,
    /// Mean of its rates.
    pub guest_rate: Option<f64>,
    /// Mean of its bare slice's rates.
    pub bare_rate: Option<f64>,
}
