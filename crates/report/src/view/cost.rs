//! What an arm spent on each request.

use serde::{Deserialize, Serialize};

/// One group of costs of one arm in one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostLine {
    /// For people: "4 KiB random 50/50 read/write, queue depth 32".
    pub workload: String,
    /// Arm id.
    pub arm: String,
    /// For people: "exits by reason".
    pub group: String,
    /// Means for each request, the largest first.
    pub figures: Vec<CostFigure>,
}

/// Something that would lift guests, as the exits they made say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiftLine {
    /// The exits for each request: "planned msr 0.610 of 1.130".
    pub seen: String,
    /// What spares them.
    pub what: String,
    /// The doctor's rule that looks for it, if there is one.
    pub rule: Option<String>,
}

/// One cost for each request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CostFigure {
    /// What of the group: `vcpus`, `msr`, `nvme1q1`.
    pub name: String,
    /// `µs` of CPU time, or empty for a count.
    pub unit: String,
    /// The mean.
    pub value: f64,
}
