//! Tests of the whole: apply, crash at every fault point, rollback.

mod crash;
mod fix;
mod fleet_plan;
mod journal;
mod new_domain;
mod plan;
pub(crate) mod stage;
mod verdicts;
