//! What every measurement with clones is made under.

use std::path::PathBuf;

use crate::results::Environment;

/// Where a measurement finds what it needs, and what it may do.
#[derive(Debug, Clone)]
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
}
