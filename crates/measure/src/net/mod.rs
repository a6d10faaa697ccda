//! The network matrix: which way a guest's packets should take to a port of this machine.
//!
//! [`net_arms`] lists the ways there are, as data; a race makes guests whose cards they are, reads each back, races
//! them against a peer on the other end of the cable ([`nearmetal_stats::Race`]) and measures the winner again in a guest
//! of its own, beside libvirt's default and the bare slice. [`nearmetal_results::NetMatrixResults`] is what is left.

mod arms;
pub(crate) mod effect;
mod greet;
pub(crate) mod guest;
pub(crate) mod interface;
mod lane;
pub(crate) mod member_clone;
pub(crate) mod port;
mod request;
mod rig;
mod run;
pub(crate) mod several;
pub(crate) mod space;

pub use arms::{Function, NetGround, net_arms, net_words};
pub(crate) use port::NetBefore;
pub use port::check_address;
pub use request::{NetMatrixRequest, net_ground, net_least_seconds, port_functions};
pub use run::{port_model, read_back_net};
