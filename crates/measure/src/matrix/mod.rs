//! The disk matrix: which way a guest should reach its disk on this machine.
//!
//! [`arms`] lists the ways there are, as data; a race makes one guest whose disks they are, reads each back, races
//! them ([`nearmetal_stats::Race`]) and measures the winner again in a guest of its own.
//! [`nearmetal_results::MatrixResults`] is what is left.

mod arms;
mod containers;
mod disks;
mod effect;
mod flushes;
mod given_back;
mod rig;
mod run;
mod scheduler;
mod served;
mod space;
mod survey;
mod volumes;

pub use arms::{Ground, MOST_ARMS, arms, path_words};
pub(crate) use containers::fill;
pub use run::{FIRST_LOOK, LOOKS, MatrixRequest, containers_of, device_model, ground, least_seconds};
pub use survey::read_back_paths;
pub(crate) use volumes::remove as remove_volume_group;
