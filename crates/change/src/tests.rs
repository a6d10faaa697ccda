//! Tests of the whole: apply, crash at every fault point, rollback.

mod crash;
mod devices;
mod fix;
mod journal;
mod plan;
mod stage;
mod verdicts;
