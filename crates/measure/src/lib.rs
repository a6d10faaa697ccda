//! One engine for every comparison, and the experiments composed of it.
//!
//! One engine runs every comparison of a guest with bare metal ([`engine`]); a composition says what is compared: a guest in
//! clones ([`slice`]), without each decision of its plan ([`decisions`]), with and without huge pages and pins ([`pages`]), as each of its possible plans has it ([`tune`]), over more and more nodes ([`modes`]), in itself ([`inside`]), with a drive of its own ([`drive`]), several at once ([`together`]), tiles until the machine is full ([`tiles`]), ways to a
//! disk ([`matrix`]) or a network ([`net`]). Every run is kept ([`nearmetal_results::Results`],
//! [`nearmetal_results::Store`]); what may be said of them is worked out afterwards ([`nearmetal_results::compare`]).

mod appliance;
mod barrier;
mod clock;
mod clones;
mod conditions;
mod decisions;
mod drive;
mod engine;
mod error;
mod event;
mod experiment;
mod finish;
mod inside;
mod itself;
mod leftovers;
mod log;
mod matrix;
mod modes;
mod mounts;
mod net;
mod pages;
mod pairing;
#[cfg(test)]
mod played;
mod program;
mod record;
mod scratch;
mod slice;
mod stand;
mod tiles;
mod together;
mod tune;

pub use clones::{APPLIANCE_COMMAND_LINE, clone_name};
pub use conditions::{Conditions, Stop, environment_of};
pub use decisions::DecisionsRequest;
pub use drive::{DriveRequest, function_of};
pub use error::MeasureError;
pub use event::Event;
pub use experiment::Experiment;
pub use inside::InsideRequest;
pub use leftovers::{leftovers_since, take_back_leftovers};
pub use matrix::{
    FIRST_LOOK, Ground, LOOKS, MOST_ARMS, MatrixRequest, arms, containers_of, device_model, ground, least_seconds,
    path_words, read_back_paths,
};
pub use modes::{Mode, ModesRequest, NodePart, parts_of};
pub use net::{
    Function, NetGround, NetMatrixRequest, check_address, net_arms, net_ground, net_least_seconds, net_words,
    port_functions, port_model, read_back_net,
};
pub use pages::PagesRequest;
pub use pairing::Pairing;
pub use slice::{SliceArm, SliceRequest};
pub use stand::OnScratch;
pub use tiles::{MOST_GUESTS_OF_TILES, TileWay, TilesRequest};
pub use together::{MOST_TOGETHER, Member, Over, TogetherRequest};
pub use tune::{TUNE_LOOKS, TuneArm, TuneOn, TuneRequest, least_tune_seconds};
