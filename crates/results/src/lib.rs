//! What a measurement leaves: documents of every kind, what may be said of them, and the store that keeps them.
//!
//! Nothing here touches a guest, or anything of the machine but the store. A comparison, a table of costs or the worth of a
//! tile is worked out of a document alone, long after it was measured and wherever it is read. How documents come about is
//! the work of `nearmetal-measure`.

mod advice;
mod arm;
mod compare;
mod cost;
mod disk;
mod document;
mod effect;
mod error;
mod ground;
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
pub use compare::{CONFIDENCE, Comparison, Estimate, compare, noise, pairs_of_runs};
pub use cost::{
    CostRow, CostsOf, Lifting, cost_figures, cost_table, cost_text, costs_of_guests, lift_rules, lift_text, liftings,
};
pub use disk::{
    ArmResult, Bus, Confirmation, Container, DiskPath, MATRIX_SCHEMA, MatrixResults, PATHS_SCHEMA, PathCache, PathRow,
    PathTable, Scheduler, to_default_and_median,
};
pub use effect::{Effect, Proof};
pub use error::ResultsError;
pub use ground::GroundKey;
pub use left_out::LeftOut;
pub use measurement::Measurement;
pub use net::{
    Backend, CardPlace, Ceiling, Link, MOST_QUEUES, NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetCostRow,
    NetFigure, NetMatrixResults, NetPath, PEER_BOUND, PortRole, is_peer_bound, net_cost_table, net_medians, net_metric,
};
pub use older::upgraded;
pub use results::{
    Arm, Environment, Outcome, Part, Purpose, Results, Run, SCHEMA, Slice, Tenant, Together, last_tries,
};
pub use store::{Begun, Entry, State, Store, as_json};
pub use tiles::{
    ArmFilled, BUSY, FULL_TILE, Filling, Full, Judged, Level, Look, Miss, RoleLimits, Served, TileScore, filled,
    judged, miss_text, tiles_held,
};
pub use tune::{AloneEffect, AloneFactor, TuneEffect, TuneFactor, TuneVerdict, TunedArm, Tuning};
pub use turn::Turn;
