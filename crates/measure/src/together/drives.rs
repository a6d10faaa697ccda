//! fio, each member on a drive of its own.

use std::time::Duration;

use super::results::Side;
use super::sample::{Load, Turn};
use super::window::{Window, of_fio};
use crate::cost::{Each, Middle};
use crate::error::MeasureError;
use crate::executor::{iops, settle};
use crate::fio;
use crate::workload::FioJob;

/// The members' drives.
pub(crate) trait Drives {
    /// Gives the drives of the members that work to their side. The guests are paused before and after.
    ///
    /// # Errors
    /// One of them does not get there.
    fn turn_to(&mut self, _: &mut Turn<'_>) -> Result<(), MeasureError> {
        Ok(())
    }
    /// The block device of the member with this number, as that side calls it; empty where there is none.
    fn device(&self, side: Side, number: usize) -> &str;
}

/// A job on drives.
pub(crate) struct OnDrives<D> {
    pub(crate) job: FioJob,
    pub(crate) drives: D,
}

impl<D: Drives> Load for OnDrives<D> {
    fn program(&self) -> &'static str {
        "fio"
    }

    fn length(&self) -> Duration {
        Duration::from_secs(u64::from(self.job.seconds + self.job.ramp_seconds))
    }

    fn middle(&self) -> Middle {
        Middle::of(&self.job)
    }

    fn each(&self) -> Each {
        Each::Io
    }

    fn turn_to(&mut self, turn: &mut Turn<'_>) -> Result<(), MeasureError> {
        self.drives.turn_to(turn)?;
        settle(turn.fs)
    }

    fn stamp(&self) -> bool {
        false
    }

    fn command(&self, side: Side, number: usize, seed: u64) -> Vec<String> {
        let arguments = self.job.arguments(self.drives.device(side, number), seed);
        std::iter::once("fio".to_owned()).chain(arguments).collect()
    }

    fn read(&self, output: &str, ahead: f64) -> Result<(f64, Window), MeasureError> {
        Ok((iops(&fio::metrics(output)?), of_fio(output, ahead)?))
    }
}
