//! The parts of a tile, as data: what each serves, what it is asked, and how fast it has to answer.

mod role;
mod server;
mod size;

pub use self::role::{Limit, Role};
pub use self::server::Peers;
pub(crate) use self::size::{DIRECTORY, MOST_DIRECTORIES};
pub use self::size::{Rate, Scale, TileSize};
