//! Processor time the host spends, by PU: /proc/stat (proc_stat(5)). Guests' time is in it.

use nearmetal_host::HostFs;
use nearmetal_units::CpuSet;

use crate::error::MeasureError;

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
        let busy = |of: Option<&CpuSet>| busy_ticks(&text, of) as f64 / ticks;
        Ok(Self { slice: busy(Some(slice)), host: busy(None) })
    }

    /// What was spent since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self { slice: (self.slice - before.slice).max(0.0), host: (self.host - before.host).max(0.0) }
    }
}

/// Ticks in `cpuN user nice system idle iowait irq softirq steal …` that are not idle. Lines of another form count nothing.
fn busy_ticks(text: &str, of: Option<&CpuSet>) -> u64 {
    let line = |line: &str| -> Option<u64> {
        let (name, fields) = line.split_once(' ')?;
        let cpu: u32 = name.strip_prefix("cpu")?.parse().ok()?;
        if of.is_some_and(|set| !set.contains(cpu)) {
            return None;
        }
        let fields: Vec<u64> = fields.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else { return None };
        Some(user + nice + system + irq + softirq)
    };
    text.lines().filter_map(line).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  100 1 20 900 5 1 2 0 50 0\ncpu0 60 1 10 400 5 0 1 0 50 0\ncpu1 40 0 10 500 0 1 1 0 0 0\nintr 5\n";

    #[test]
    fn busy_is_what_is_neither_idle_nor_waiting() {
        assert_eq!(busy_ticks(STAT, None), 72 + 52);
        assert_eq!(busy_ticks(STAT, Some(&CpuSet::one(1))), 52);
        assert_eq!(busy_ticks("cpu0 1 2\ncpuX 1 2 3 4 5 6 7\n", None), 0);
    }
}
