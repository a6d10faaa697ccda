//! What a measurement leaves: documents of every kind, what may be said of them, and the store that keeps them.
//!
//! Nothing here touches a guest or the machine. A comparison, a table of costs or the worth of a tile is worked out of a document
//! alone, long after it was measured and wherever it is read. How documents come about is the work of `nearmetal-measure`.

mod advice;
mod arm;
mod compare;
mod cost;
mod disk;
mod document;
mod error;
mod left_out;
mod measurement;
mod net;
mod older;
mod results;
#[cfg(any(test, feature = "samples"))]
#[doc(hidden)]
pub mod samples;
mod store;
mod tiles;
mod tune;
mod turn;

pub use advice::Advice;
pub use arm::{AS_FOUND, ArmName, BARE_SLICE, PLANNED, Role, VIRT_INSTALL, against};
pub use compare::{CONFIDENCE, Comparison, Estimate, compare, noise, pairs};
pub use cost::{
    CostRow, CostsOf, Lifting, cost_figures, cost_table, cost_text, costs_of_guests, lift_rules, lift_text, liftings,
};
pub use disk::{
    ArmResult, Bus, Confirmation, Container, DiskPath, Effect, GroundKey, MATRIX_SCHEMA, MatrixResults, PATHS_SCHEMA,
    PathCache, PathRow, PathTable, Proof, Scheduler, figures as turn_figures,
};
pub use document::unreadable;
pub use error::ResultsError;
pub use left_out::LeftOut;
pub use measurement::Measurement;
pub use net::{
    Backend, Ceiling, Link, MOST_QUEUES, NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetCostRow, NetFigure,
    NetMatrixResults, NetPath, PEER_BOUND, Place as CardPlace, Role as PortRole, bound as peer_bound,
    medians as turn_medians, net_cost_table, net_metric,
};
pub use older::upgraded;
pub use results::{Arm, Environment, Outcome, Part, Purpose, Results, Run, SCHEMA, Slice, Tenant, Together};
pub use store::{Begun, Entry, State, Store, json};
pub use tiles::{
    ArmFilled, BUSY, FULL_TILE, Filling, Full, Judged, Level, Look, Miss, OFFERED, RoleLimits, Served, TileScore,
    filled, full, judged, median, miss_text,
};
pub use tune::{AloneEffect, AloneFactor, TuneEffect, TuneFactor, TuneVerdict, TunedArm, Tuning};
pub use turn::{METRIC as IOPS, Turn, median as turn_median, pairs as turn_pairs};
