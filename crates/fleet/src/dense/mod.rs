//! The fleet as dense integers: what the search works on.

mod near;
mod node;
mod problem;
mod shape;
mod state;

pub(crate) use node::{KERNEL, MILLI, NodeUse, PAGE_CLASSES, milli};
pub(crate) use problem::{DenseGroup, DenseHost, DenseVm, MOST_VCPUS, PRIORITIES, Problem, takes};
pub(crate) use shape::{Cells, Demand, Shape};
pub(crate) use state::{
    Assign, CROWDED, EXTRA, Grant, HOSTS, NODES, Piece, REMOTE, REMOTE_DEVICES, State, Value, ZERO,
};
