//! A tile: six guests that serve what a company serves, each of them one part of it.
//!
//! [`Role`] says what a guest is for, [`server`] what runs in it, [`TileSize`] how much it holds and is asked. What drives it
//! from outside is a load as any other ([`crate::load::ServedJob`]).

mod role;
#[allow(dead_code, reason = "the path that starts guests of tiles uses it")]
mod server;
mod size;

pub use self::role::{Limit, Role};
#[allow(unused_imports, reason = "as above")]
pub(crate) use self::server::Peers;
pub use self::size::{Rate, Scale, TileSize};
