//! Processor time the host spends, by PU: /proc/stat (proc_stat(5)). Guests' time is in it.

use nearmetal_host::HostFs;
use nearmetal_units::CpuSet;

use crate::error::MeasureError;
use crate::pu_time::busy_ticks;

/// Busy time since boot of some PUs, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Busy {
    /// Of the slice and what the guest uses on top of it.
    pub slice: f64,
    /// Of all PUs.
    pub host: f64,
}

impl Busy {
    /// Reads it.
    pub(crate) fn read(fs: &HostFs, slice: &CpuSet) -> Result<Self, MeasureError> {
        let text = fs
            .read("/proc/stat")
            .map_err(|source| MeasureError::Kernel { what: "cannot read processor time".into(), source })?;
        let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
        let busy = |counts: &dyn Fn(u32) -> bool| {
            let all = busy_ticks(&text).filter(|(pu, _)| counts(*pu));
            all.fold(0, |sum: u64, (_, busy)| sum.saturating_add(busy)) as f64 / ticks
        };
        Ok(Self { slice: busy(&|pu| slice.contains(pu)), host: busy(&|_| true) })
    }

    /// What was spent since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { slice: (self.slice - before.slice).max(0.0), host: (self.host - before.host).max(0.0) }
    }
}
