//! Ways to a network: as data, and what a race of them leaves.

pub(crate) mod costs;
pub(crate) mod path;
pub(crate) mod race;

pub use costs::{NetCostRow, net_cost_table, net_metric};
pub use path::{Backend, CardPlace, Link, MOST_QUEUES, NetPath, PortRole};
pub use race::{
    Ceiling, NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetFigure, NetMatrixResults, PEER_BOUND, is_peer_bound,
    net_medians,
};
