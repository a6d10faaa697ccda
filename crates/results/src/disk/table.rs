//! What a machine can hold: every path with what was read back of it. Schema `nearmetal.paths/1`.

use serde::{Deserialize, Serialize};

use super::path::DiskPath;
use crate::effect::Proof;
use crate::ground::GroundKey;
use crate::left_out::LeftOut;
use crate::results::Environment;

/// Value of [`PathTable::schema`].
pub const PATHS_SCHEMA: &str = "nearmetal.paths/1";

/// Every path, with what shows that it took effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathTable {
    /// Always [`PATHS_SCHEMA`] for this version.
    pub schema: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// Where it was read.
    pub environment: Environment,
    /// Drive, kernel and QEMU.
    pub ground: GroundKey,
    /// Domain whose clones had the disks.
    pub guest: String,
    /// Seconds it took.
    pub took: f64,
    /// One row a path.
    pub rows: Vec<PathRow>,
    /// Paths that this machine cannot hold, and why.
    pub left_out: Vec<LeftOut>,
}

/// One path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRow {
    /// The path.
    pub path: DiskPath,
    /// Its id.
    pub id: String,
    /// Device or file behind it.
    pub source: String,
    /// What was read back.
    pub proof: Proof,
}
