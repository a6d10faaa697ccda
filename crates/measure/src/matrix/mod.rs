//! The disk matrix: which way a guest should reach its disk on this machine.
//!
//! [`arms`] lists the ways there are, as data; [`matrix`] makes one guest whose disks they are, reads each back, races
//! them ([`nearmetal_stats::Race`]) and measures the winner again in a guest of its own. [`MatrixResults`] is what is left.

mod arms;
mod containers;
mod contest;
mod disks;
mod effect;
mod flushes;
mod path;
mod results;
mod rig;
mod run;
mod space;

pub use arms::{Ground, LeftOut, MOST_ARMS, arms, major_minor};
pub use contest::Turn;
pub(crate) use contest::{Track, contest};
pub use effect::Effect;
pub use path::{Bus, Container, DiskPath, PathCache};
#[cfg(test)]
pub(crate) use results::tests::sample_matrix;
pub use results::{Advice, ArmResult, Confirmation, GroundKey, MATRIX_SCHEMA, MatrixResults};
pub use run::{FIRST_LOOK, LOOKS, MatrixRequest, containers_of, device_model, ground, least_seconds, matrix};
