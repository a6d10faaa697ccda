//! Decisions, differences and checks.

use nearmetal_units::PageSize;
use serde::{Deserialize, Serialize};

/// What was decided, and why.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PlanView {
    /// One per decision, in the order a reader wants them.
    pub reasons: Vec<ReasonRow>,
    /// Hugepage pools that change.
    pub pools: Vec<PoolRow>,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonRow {
    /// What was decided: `node`, `vcpu pins`, `disk vda`.
    pub subject: String,
    /// The choice, with its values.
    pub choice: String,
    /// Why, one sentence, with the facts it rests on.
    pub because: String,
    /// Paper, kernel or libvirt document behind the rule.
    pub source: Option<String>,
}

/// A hugepage pool that changes. Counts are persistent pages (total minus surplus).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// Node.
    pub node: u32,
    /// Page size.
    pub size: PageSize,
    /// Pages before.
    pub before: u64,
    /// Pages after.
    pub after: u64,
}

/// One line of a difference, without its leading sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffLine {
    /// What happened to it.
    pub kind: DiffKind,
    /// The line.
    pub text: String,
}

/// What happened to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffKind {
    /// Unchanged.
    Context,
    /// Only as found.
    Removed,
    /// Only as planned.
    Added,
    /// Unchanged lines are left out here; the text says which or how many.
    Gap,
}

/// One thing that was read back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckRow {
    /// What was looked at, with the thread, page or file: "vCPU 0 (thread 4711)".
    pub subject: String,
    /// What the plan says.
    pub planned: String,
    /// What is; `None` if it could not be read.
    pub found: Option<String>,
    /// How the two compare.
    pub outcome: CheckOutcome,
    /// Where it was read, or why it could not be.
    pub detail: Option<String>,
}

/// How what is compares with what was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// As planned.
    Ok,
    /// Not as planned.
    Mismatch,
    /// Not readable: neither proven nor disproven.
    CannotTell,
}

/// Outcomes of the read-back, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckCounts {
    /// As planned.
    pub ok: u64,
    /// Not as planned.
    pub mismatch: u64,
    /// Not readable.
    pub cannot_tell: u64,
}

impl CheckCounts {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.ok + self.mismatch + self.cannot_tell
    }
}
