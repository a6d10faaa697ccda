//! Changing a machine so that it can be changed back: plan files, a write-ahead journal, apply, read-back, rollback.
//!
//! [`compose`] turns the planner's answer into a [`PlanFile`], [`apply()`] puts one in force, [`verify`] reads back,
//! [`rollback()`] restores what was before, [`boot`] makes again at boot what a reboot loses. Every change is in the
//! [`journal`] before it is made.

mod after_start;
mod apply;
pub mod boot;
mod boot_unit;
mod change;
mod device_state;
pub mod devices;
mod error;
mod faults;
pub mod fix;
mod fleet_placement;
mod fleet_plan;
mod found;
mod guests_to_stop;
mod instance;
pub mod journal;
mod kernel;
mod machine;
mod modules;
mod new_domain;
mod passed_functions;
mod perform;
mod pins;
mod plan_file;
mod pools;
pub mod private_files;
mod qemu_hook;
mod rollback;
mod shared;
mod steps;
pub mod timestamp;
mod transact;
mod undo;
mod value;
pub mod verify;

#[cfg(test)]
mod tests;

pub use after_start::follow;
pub use apply::{Applied, Apply, ApplyOptions, ReadBack, apply, changes, fault_points};
pub use boot_unit::UNIT_NAME;
pub use change::{Change, Lifetime};
pub use error::ChangeError;
pub use faults::Faults;
pub use fleet_placement::{Seat, placement_of};
pub use fleet_plan::{AnyPlan, FLEET_PLAN_SCHEMA, FleetPlanFile, HostPart, Reach, check_destination};
pub use instance::{Instance, awaits_start};
pub use journal::{Journal, STATE_DIRECTORY};
pub use kernel::{Kernel, boot_id, persistent_pages};
pub use machine::{Machine, Surroundings};
pub use pins::{InterruptPin, PinTarget, Pins, WorkerPin};
pub use plan_file::{
    Beside, DomainChange, DomainInput, Followed, HostIdentity, Left, PLAN_SCHEMA, Part, PlanFile, Starting, compose,
    compose_from, compose_with_new, edited, follow_rules, shaped_by_class,
};
pub use pools::{POOL_PATIENCE, resize_pool};
pub use rollback::{Preview, RollbackOptions, RolledBack, forget, preview, rollback, rollback_fault_points};
pub use shared::Seen;
pub use timestamp::now;
