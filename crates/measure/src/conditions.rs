//! What every measurement is made under.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::results::Environment;

/// Where a measurement finds what it needs, what it may do, and where it is written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Seed of order, workloads and bootstrap.
    pub seed: u64,
    /// Directory of the appliance.
    pub appliance: PathBuf,
    /// The probe, a static program.
    pub probe: PathBuf,
    /// State directory, for the record of what must be put back.
    pub state: PathBuf,
    /// Lab or silicon.
    pub environment: Environment,
    /// Whether the user allows running originals to be paused.
    pub pause: bool,
    /// The store that every run goes into as it ends; `None`: none.
    pub store: Option<PathBuf>,
    /// The plan that is measured, as history shows it: when it was made.
    pub plan: Option<String>,
    /// The number of an interrupted measurement in the store, to go on with.
    #[serde(skip)]
    pub resume: Option<i64>,
}
