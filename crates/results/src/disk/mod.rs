//! Ways to a disk: as data, and what a race of them leaves, or a look at all of them.

pub(crate) mod path;
pub(crate) mod race;
mod table;

pub use path::{Bus, Container, DiskPath, PathCache, Scheduler};
pub use race::{ArmResult, Confirmation, MATRIX_SCHEMA, MatrixResults, to_default_and_median};
pub use table::{PATHS_SCHEMA, PathRow, PathTable};
