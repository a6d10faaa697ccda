//! Tests of the whole: apply, crash at every fault point, rollback.

mod crash;
mod fix;
mod fleet_plan;
mod journal;
mod plan;
mod stage;
mod verdicts;
