//! Loads, arms, designs, provenance and the results store.
//!
//! One engine runs every comparison of a guest with bare metal ([`engine`]); a composition says what is compared: a guest in
//! clones ([`slice`]), without each decision of its plan ([`decisions`]), with and without huge pages and pins ([`pages`]), as each of its possible plans has it ([`tune`]), over more and more nodes ([`modes`]), in itself ([`inside`]), with a drive of its own ([`drive`]), several at once ([`together`]), tiles until the machine is full ([`tiles`]), ways to a
//! disk ([`matrix`]) or a network ([`net`]). Every run is kept ([`Results`], [`Store`]); what may be said of them is worked
//! out afterwards ([`compare`]).

mod appliance;
mod arm;
mod barrier;
mod clock;
mod clones;
mod compare;
mod conditions;
mod cost;
mod decisions;
mod document;
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
mod net;
mod older;
mod on_its_pus;
mod pages;
mod pairing;
#[cfg(test)]
mod played;
mod program;
mod pu_time;
mod record;
mod results;
mod scratch;
mod slice;
mod stand;
mod store;
mod tiles;
mod together;
mod tune;

pub use arm::{AS_FOUND, ArmName, BARE_SLICE, PLANNED, Role, VIRT_INSTALL, against};
pub use clones::{APPLIANCE_COMMAND_LINE, clone_name};
pub use compare::{CONFIDENCE, Comparison, Estimate, compare, noise};
pub use conditions::{Conditions, Stop};
pub use cost::{
    CostRow, CostsOf, Lifting, cost_figures, cost_table, cost_text, costs_of_guests, lift_rules, lift_text, liftings,
};
pub use decisions::DecisionsRequest;
pub use drive::{DriveRequest, function_of};
pub use error::MeasureError;
pub use event::Event;
pub use experiment::{Experiment, Measurement};
pub use inside::InsideRequest;
pub use leftovers::{leftovers_since, take_back_leftovers};
pub use matrix::{
    Advice, ArmResult, Bus, Confirmation, Container, DiskPath, Effect, FIRST_LOOK, Ground, GroundKey, LOOKS, LeftOut,
    MATRIX_SCHEMA, MOST_ARMS, MatrixRequest, MatrixResults, PATHS_SCHEMA, PathCache, PathRow, PathTable, Proof,
    Scheduler, Turn, arms, containers_of, device_model, ground, least_seconds, path_words, read_back_paths,
};
pub use modes::{ModesRequest, NodePart, parts_of};
/// What requests and documents name of loads.
pub use nearmetal_load::{
    CommandJob, Cost, FileJob, FileStep, FileSystem, FioEngine, FioJob, JavaPages, JvmJob, Kit, KitEdition, KitHash,
    Limit, MemoryBandwidth, MemoryJob, MemoryLatency, Metric, Named, NetJob, NetTest, OltpJob, Order, Pattern,
    PgbenchJob, ProbePages, Rate, Scale, ServedJob, Shape, SpecJbbJob, TileRole, TileSize, Unit, WebJob, Window,
    WorkJob, Workload, WorksOn,
};
pub use net::{
    Backend, Ceiling, Function, Link, NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetCostRow, NetFigure,
    NetGround, NetMatrixRequest, NetMatrixResults, NetPath, PEER_BOUND, check_address, net_arms, net_cost_table,
    net_ground, net_least_seconds, net_words, port_functions, port_model, read_back_net,
};
pub use older::upgraded;
pub use pages::PagesRequest;
pub use pairing::Pairing;
pub use results::{Arm, Environment, Outcome, Part, Purpose, Results, Run, SCHEMA, Slice, Tenant, Together};
pub use slice::SliceRequest;
pub use stand::OnScratch;
pub use store::{Entry, State, Store};
pub use tiles::{
    ArmFilled, FULL_TILE, Filling, Full, Judged, Level, MOST_GUESTS_OF_TILES, Miss, RoleLimits, Served, TileScore,
    TileWay, TilesRequest, filled, judged, miss_text,
};
pub use together::{MOST_TOGETHER, Member, Over, TogetherRequest};
pub use tune::{
    AloneEffect, AloneFactor, TUNE_LOOKS, TuneArm, TuneEffect, TuneFactor, TuneOn, TuneRequest, TuneVerdict, TunedArm,
    Tuning, least_tune_seconds,
};
