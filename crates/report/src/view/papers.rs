//! Published figures, and ours beside them.

use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

/// One figure of a paper. [`crate::papers::beside`] gives those this project keeps, with their source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaperFigure {
    /// Authors, title, year.
    pub paper: String,
    /// Section of the paper.
    pub section: String,
    /// What was measured: "IOPS, one guest".
    pub what: String,
    /// On what.
    pub configuration: String,
    /// The value as the paper writes it, its qualifier included: "about 800,000".
    pub value: String,
    /// Unit.
    pub unit: String,
    /// Request size, where one is stated.
    pub request_size: Option<Bytes>,
    /// Ours, where we measured the same kind of thing.
    pub ours: Option<Beside>,
    /// What of the two may be compared, one phrase; `None` for what the page says of all figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compares: Option<String>,
}

/// Our figure beside a paper's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The value with its unit: "0.62× of bare metal", "4,017 IOPS".
    pub value: String,
    /// What differs: "1 guest of 2 vCPUs, one emulated drive".
    pub note: String,
}
