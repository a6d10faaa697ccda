//! The JSON that commands print and a report reads back.

use nearmetal_host::Host;
use nearmetal_report::view::CheckRow;
use serde::{Deserialize, Serialize};

/// Value of [`RollbackOutput::schema`].
pub(crate) const ROLLBACK_SCHEMA: &str = "nearmetal.rollback/1";

/// What a report needs of `nearmetal inspect --format json`; its summary and contradictions are for people.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct HostOutput {
    /// [`nearmetal_host::SCHEMA`].
    pub schema: String,
    /// The host.
    pub host: Host,
}

/// What `nearmetal rollback --format json` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RollbackOutput {
    /// [`ROLLBACK_SCHEMA`].
    pub schema: String,
    /// Whether the former state was found again.
    pub ok: bool,
    /// Number of the transaction that was taken back.
    pub transaction: u32,
    /// One sentence per change, in the order in which they were taken back.
    pub notes: Vec<String>,
    /// What was looked at afterwards, if anything was.
    #[serde(default)]
    pub checks: Vec<CheckRow>,
}
