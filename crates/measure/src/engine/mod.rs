//! One engine for every comparison of a guest with bare metal.
//!
//! Five words, and a composition says what each of them is:
//! - a **load** is what runs ([`nearmetal_load::Load`]): its command, the reader of its output, its unit and length;
//! - a **tenant** is who runs it: a guest with its slice; a single guest is one tenant;
//! - an **arm** is one way of running it ([`nearmetal_results::ArmName`]), as data;
//! - a **path** gets the tenants of an arm to what they work on ([`Path`]): prepare, turn to an arm, read back;
//! - a **design** says what runs next ([`Design`]): pairs with a pilot, for one tenant or from one to all; a race; one tile
//!   after the other until the machine is full.
//!
//! [`carry_out`] asks the design for rounds and runs their steps by [`sample`]; a [`Session`] holds everything that was
//! borrowed from the host, and gives it back, whoever dies.

mod fill;
mod pairs;
mod path;
mod pools;
mod race;
mod random;
mod round;
mod sample;
mod session;
#[cfg(test)]
mod tests;
mod turn;

pub(crate) use fill::{Fill, FillPlan};
pub(crate) use pairs::{Pairs, Plan};
pub(crate) use path::{Clones, Guest, Path, Pus, Seat, restart_if_dead};
pub(crate) use race::Racing;
pub(crate) use random::SplitMix;
pub(crate) use round::{Design, Fresh, Round, Step, carry_out, chain};
pub(crate) use sample::{Subject, Tenant, settle};
#[cfg(test)]
pub(crate) use session::BOOT_LIMIT;
pub(crate) use session::{Session, Site, ask, failed, new_uuid, slice_of, stdout_of};
