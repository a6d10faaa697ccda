//! What keeps KVM guests from bare-metal speed: one rule, one file.
//!
//! A [`Rule`] is data and one pure function from [`Input`] (host, domains, settings) to an [`Outcome`]. [`RULES`] lists
//! all of them, [`examine`] runs them. Nothing here reads the machine.

mod context;
mod cure;
mod examine;
mod file_disks;
mod finding;
mod input;
mod isolation;
mod lvm;
mod parameters;
mod pools;
mod reference;
mod registry;
mod rule;
mod rules;
pub mod scheduling;
mod settings;
mod sources;
mod subject;

pub use context::Context;
pub use cure::{Cure, Thread};
pub use examine::{Answer, CannotTell, Examination, Untold, examine, examine_those};
pub use finding::{Finding, Object, Outcome, Scope, Which};
pub use input::{Domain, Input, class_of};
pub use nearmetal_place::WorkloadClass;
pub use reference::{NOT_COVERED, reference};
pub use registry::{RULES, rule};
pub use rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
pub use settings::{SETTINGS, Setting, Settings};
pub use sources::{Source, source};
pub use subject::Subject;
