//! Tests of the whole: apply, crash at every fault point, rollback.

mod after_start;
mod crash;
mod devices;
mod fix;
mod fleet_plan;
mod follow;
mod journal;
mod new_domain;
mod plan;
mod rules;
pub(crate) mod stage;
mod verdicts;
mod wide_verdicts;
