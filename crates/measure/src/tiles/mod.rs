//! A tile: six guests that serve what a company serves, each of them one part of it.

mod role;
mod size;

pub(crate) use self::role::Peers;
pub use self::role::{Limit, Role};
pub use self::size::{Rate, Scale, TileSize};
