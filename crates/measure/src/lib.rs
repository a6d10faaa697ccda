//! Workloads, arms, schedule, provenance and the results store.
//!
//! An experiment: arms run the same [`Workload`]s in rounds ([`schedule`]); every run is kept ([`Results`], [`Store`]);
//! what may be said of them is worked out afterwards ([`compare`]). A matrix of ways to a disk is a race ([`matrix`]).

mod appliance;
mod bench;
mod clones;
mod compare;
mod conditions;
mod cost;
mod document;
mod error;
mod executor;
mod experiment;
mod file_set;
mod fio;
mod host_cpu;
mod leftovers;
mod matrix;
mod memory;
mod metric;
mod net;
mod own_guest;
mod passthrough;
mod pilot;
mod program;
mod pu_time;
mod record;
mod results;
mod schedule;
mod scratch;
mod store;
mod together;
mod workload;

pub use bench::{Event, Request, bench};
pub use clones::clone_name;
pub use compare::{AGAINST, CONFIDENCE, Comparison, Estimate, compare, noise};
pub use conditions::Conditions;
pub use cost::{
    Cost, CostRow, CostsOf, Lifting, cost_figures, cost_table, cost_text, costs_of_guests, lift_rules, lift_text,
    liftings,
};
pub use error::MeasureError;
pub use experiment::{Executor, Measured, perform};
pub use file_set::{FileJob, FileStep, FileSystem};
pub use leftovers::take_back_leftovers;
pub use matrix::{
    Advice, ArmResult, Bus, Confirmation, Container, DiskPath, Effect, FIRST_LOOK, Ground, GroundKey, LOOKS, LeftOut,
    MATRIX_SCHEMA, MOST_ARMS, MatrixRequest, MatrixResults, PATHS_SCHEMA, PathCache, PathRow, PathTable, Proof,
    Scheduler, Turn, arms, containers_of, device_model, ground, least_seconds, major_minor, matrix, path_words,
    read_back_paths,
};
pub use metric::{Metric, Unit};
pub use net::{
    Backend, Ceiling, Function, Link, NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetCostRow, NetFigure,
    NetGround, NetMatrixRequest, NetMatrixResults, NetMember, NetPath, NetTest, NetTogetherRequest, PEER_BOUND,
    bench_net_together, check_address, net_arms, net_cost_table, net_ground, net_least_seconds, net_matrix, net_words,
    port_functions, port_model,
};
pub use own_guest::{OwnGuestRequest, bench_own_guest};
pub use passthrough::{
    FunctionMember, FunctionRequest, FunctionTogetherRequest, bench_function, bench_functions_together, function_of,
};
pub use results::{Arm, ArmKind, Environment, Outcome, Purpose, Results, Run, SCHEMA, Slice};
pub use schedule::{Design, Step, schedule};
pub use scratch::Scratch;
pub use store::Store;
pub use together::{
    Member, MemberInfo, MemberSample, Side, TOGETHER_SCHEMA, TogetherLoad, TogetherRatio, TogetherRequest,
    TogetherResults, TogetherSample, TogetherTerms, bench_together, together_text,
};
pub use workload::{FioEngine, FioJob, MemoryJob, Order, Pattern, ProbePages, Workload};
