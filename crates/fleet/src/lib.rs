//! The fleet planner: many VMs over many hosts, nodes, cores, pages and devices together, with a bound on how good the
//! plan is and a reason for every refusal. Pure: the same fleet, seed and steps give the same plan.
//!
//! [`Fleet`] is the question, [`FleetPlan`] the answer, [`plan`] the way, [`check`] the judge that shares no code with it.
//!
//! ```
//! use nearmetal_fleet::{CoreSupply, Fleet, FleetHost, NodeSupply, Options, Vm, check, plan};
//! use nearmetal_units::Bytes;
//!
//! let cores = (0..4).map(|pu| CoreSupply { free: vec![pu], threads: 1, l3: 0, kind: 0 }).collect();
//! let node = NodeSupply { cores, memory: Bytes::from_mib(8192), ..NodeSupply::default() };
//! let host = FleetHost { name: "one".to_owned(), nodes: vec![node], ..FleetHost::default() };
//! let vms = vec![Vm::new("a", 2, Bytes::from_mib(4096)), Vm::new("b", 3, Bytes::from_mib(4096))];
//! let fleet = Fleet { vms, hosts: vec![host], ..Fleet::default() };
//! let plan = plan(&fleet, &Options::default())?;
//! assert!(check(&fleet, &plan).is_empty());
//! assert_eq!(plan.placements[0].vm, "b");
//! assert_eq!(plan.refusals[0].remedy.as_ref().map(|remedy| remedy.change.as_str()), Some("1 more free PU on node 0"));
//! # Ok::<(), nearmetal_fleet::FleetError>(())
//! ```
//!
//! How it goes: [`FleetHost::of`] says what a host has left. The fleet becomes dense integers (`dense`), a construction
//! places VMs in several orders, improvement takes some away and puts them back otherwise in counted steps (`search`),
//! small fleets are searched through. PUs inside a node are chosen last (`pin`). `bound` relaxes the problem level by
//! level. `explain`, `runner_up` and `remedy` put it into words. [`steps`]
//! leads from what runs to the plan, one VM at a time.

mod bound;
mod checker;
mod dense;
mod error;
mod explain;
pub mod file;
mod model;
mod pin;
mod pinned;
mod planner;
mod remedy;
mod runner_up;
mod search;
mod steps;
mod supply;
mod whatif;

pub use checker::{Breach, check};
pub use error::FleetError;
pub use model::*;
pub use planner::{Arrival, Options, plan};
pub use steps::{Action, Step, Steps, in_force, steps};
pub use supply::Reserve;
pub use whatif::WhatIf;
