//! Tiles: what a sample of them is worth, how many each arm held, and what ended it.

mod full;
mod judge;
mod outcome;

pub use full::{Full, Look, tiles_held};
pub use judge::{BUSY, FULL_TILE, Judged, Miss, RoleLimits, Served, TileScore, judged};
pub use outcome::{ArmFilled, Filling, Level, filled, miss_text};
