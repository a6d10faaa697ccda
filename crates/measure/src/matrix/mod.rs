//! The disk matrix: which way a guest should reach its disk on this machine.
//!
//! [`arms`] lists the ways there are, as data; [`matrix`] makes one guest whose disks they are, reads each back, races
//! them ([`nearmetal_stats::Race`]) and measures the winner again in a guest of its own. [`MatrixResults`] is what is left.

mod advice;
mod arms;
mod containers;
mod disks;
mod effect;
mod flushes;
mod given_back;
mod path;
mod results;
mod rig;
mod run;
mod scheduler;
mod served;
mod space;
mod survey;
mod turn;
mod volumes;

pub use advice::Advice;
pub use arms::{Ground, LeftOut, MOST_ARMS, arms, path_words};
pub(crate) use containers::fill;
pub use effect::{Effect, Proof};
pub use path::{Bus, Container, DiskPath, PathCache, Scheduler};
#[cfg(test)]
pub(crate) use results::tests::sample_matrix;
pub use results::{ArmResult, Confirmation, GroundKey, MATRIX_SCHEMA, MatrixResults};
pub use run::{FIRST_LOOK, LOOKS, MatrixRequest, containers_of, device_model, ground, least_seconds};
pub use survey::{PATHS_SCHEMA, PathRow, PathTable, read_back_paths};
pub use turn::Turn;
pub(crate) use turn::{median, pairs};
pub(crate) use volumes::remove as remove_volume_group;
