//! What was not measured.

use serde::{Deserialize, Serialize};

/// Arms that are not measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Which.
    pub what: String,
    /// Why.
    pub why: String,
}
