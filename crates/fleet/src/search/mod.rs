//! The search: a construction, then improvement in steps.

mod allowed;
mod construct;
mod exact;
mod find;
mod improve;
mod random;
mod repack;
mod room;
mod settle;

pub(crate) use construct::{Constructor, Order, order};
pub(crate) use exact::finish;
pub(crate) use find::{CROWDS, Finder, Prefer, Score};
pub(crate) use improve::{consolidate, improve};
pub(crate) use random::Random;
pub(crate) use settle::settle;
