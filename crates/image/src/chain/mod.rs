//! The state machines of a transfer. They do no I/O and know no clock: threads and sockets drive them in `run`, and a
//! simulator with a fake clock in the tests.

pub(crate) mod coordinator;
pub(crate) mod puller;
pub(crate) mod serve;
#[cfg(test)]
mod simulation;

use std::time::Duration;

/// How often a sign of life is sent where nothing else is.
pub(crate) const BEAT: Duration = Duration::from_millis(100);
/// After this much silence something is dealt with as dead. Six beats: fewer raise false alarms on a machine that is busy.
pub(crate) const SILENT: Duration = Duration::from_millis(600);
