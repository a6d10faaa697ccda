//! What a run costs the host in processor time.
//!
//! A guest's fio sees the guest's own time alone; QEMU's threads, vhost workers and interrupts are the host's.

use nearmetal_host::HostFs;
use nearmetal_units::CpuSet;

use crate::metric::{Metric, Unit};
use crate::workload::FioJob;

/// Name of the metric.
pub(crate) const NAME: &str = "cpu.host";

/// Nanoseconds that PUs were busy since boot, guests' time included; `cpus`: which, `None` for all. `None` where
/// /proc/stat cannot be read. Its ticks are 10 ms on all Linux machines of today (proc_stat(5), `USER_HZ`).
pub(crate) fn busy(fs: &HostFs, cpus: Option<&CpuSet>) -> Option<u64> {
    let ticks = busy_ticks(&fs.read("/proc/stat").ok()?, cpus)?;
    Some(ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

/// `cpuN user nice system idle iowait irq softirq steal …`: all but idle, waiting and stolen.
fn busy_ticks(stat: &str, cpus: Option<&CpuSet>) -> Option<u64> {
    let mut sum = None;
    for line in stat.lines() {
        let Some((name, fields)) = line.split_once(' ') else { continue };
        let Some(number) = name.strip_prefix("cpu").and_then(|number| number.parse::<u32>().ok()) else { continue };
        if cpus.is_some_and(|cpus| !cpus.contains(number)) {
            continue;
        }
        let fields: Vec<u64> = fields.split_whitespace().filter_map(|field| field.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else { return None };
        let busy = [user, nice, system, irq, softirq].into_iter().fold(0_u64, u64::saturating_add);
        sum = Some(sum.unwrap_or(0_u64).saturating_add(busy));
    }
    sum
}

/// Processor time per I/O of one run: what was spent between two readings, less the share of the ramp, during which fio
/// works and does not count. Starting fio is in it. `None` where a reading or the count is missing.
pub(crate) fn per_io(before: Option<u64>, after: Option<u64>, ios: Option<f64>, job: &FioJob) -> Option<Metric> {
    let spent = after?.checked_sub(before?)? as f64;
    let measured = f64::from(job.seconds) / f64::from(job.seconds + job.ramp_seconds);
    Metric::new(NAME, Unit::CpuNanosecondsPerIo, spent * measured / ios.filter(|ios| *ios > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_units::Bytes;

    const STAT: &str = "cpu  99 9 9 9 9 9 9 9 0 0\ncpu0 10 1 20 500 7 2 3 9 5 0\ncpu1 1 0 0 500 0 0 0 0 0 0\n\
                        cpu12 100 0 0 0 0 0 0 0 0 0\nintr 5 1\n";

    #[test]
    fn busy_is_all_but_idle_waiting_and_stolen_of_the_pus_asked_for() {
        assert_eq!(busy_ticks(STAT, Some(&CpuSet::one(0))), Some(36));
        assert_eq!(busy_ticks(STAT, None), Some(137));
        assert_eq!(busy_ticks(STAT, Some(&CpuSet::one(2))), None, "a PU that is off is unknown, not idle");
        assert_eq!(busy_ticks("cpu0 1 2\n", None), None);
        assert_eq!(busy_ticks("", None), None);
    }

    #[test]
    fn the_ramp_is_taken_off_in_proportion() {
        let job = FioJob::first_seed(Bytes::from_kib(4), 4, 1);
        let metric = per_io(Some(1_000), Some(1_001_000), Some(100.0), &job).unwrap();
        assert_eq!((metric.name.as_str(), metric.value), ("cpu.host", 8_000.0));
        assert_eq!(per_io(None, Some(5), Some(1.0), &job), None);
        assert_eq!(per_io(Some(5), Some(9), None, &job), None, "no count is unknown, not zero");
    }
}
