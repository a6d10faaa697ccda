//! What a figure rests on, how long it took, and the way back.

use serde::{Deserialize, Serialize};

use super::{CheckOutcome, CheckRow};

/// One fact about how the figures came to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What: "QEMU version".
    pub key: String,
    /// The value; `None` if it could not be had.
    pub value: Option<String>,
}

/// A long text, folded away in the page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongText {
    /// What it is: "Domain XML, as planned".
    pub title: String,
    /// The text.
    pub text: String,
}

/// How long a stage took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Stage: "boot the lab".
    pub name: String,
    /// Wall-clock seconds of the machine nearmetal ran on (never the lab's emulated clock).
    pub seconds: f64,
}

/// The way back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RollbackView {
    /// Whether the former state was found again.
    pub ok: bool,
    /// What was looked at.
    pub rows: Vec<CheckRow>,
}

impl RollbackView {
    /// Whether all changes were undone, and a guest is not as before yet: nothing differs, and not all could be seen.
    pub fn is_partly(&self) -> bool {
        !self.ok && !self.rows.is_empty() && self.rows.iter().all(|row| row.outcome != CheckOutcome::Mismatch)
    }
}
