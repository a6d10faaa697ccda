//! Ways to a disk: as data, what was read back of them, and what a race of them leaves.

pub(crate) mod effect;
pub(crate) mod path;
pub(crate) mod race;
mod table;

pub use effect::{Effect, Proof};
pub use path::{Bus, Container, DiskPath, PathCache, Scheduler};
pub use race::{ArmResult, Confirmation, GroundKey, MATRIX_SCHEMA, MatrixResults, to_default_and_median};
pub use table::{PATHS_SCHEMA, PathRow, PathTable};
