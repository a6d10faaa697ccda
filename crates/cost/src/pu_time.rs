//! Time the PUs were busy, out of /proc/stat (proc_stat(5)). Guests' time is in it.

/// Ticks since boot that each PU was neither idle, waiting nor stolen: `cpuN user nice system idle iowait irq softirq
/// steal …`. Lines of another form, the sum of all PUs among them, give nothing.
pub(super) fn busy_ticks(stat: &str) -> impl Iterator<Item = (u32, u64)> + '_ {
    stat.lines().filter_map(|line| {
        let (name, fields) = line.split_once(' ')?;
        let pu: u32 = name.strip_prefix("cpu")?.parse().ok()?;
        let fields: Vec<u64> = fields.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else { return None };
        Some((pu, [user, nice, system, irq, softirq].into_iter().fold(0, u64::saturating_add)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_neither_idle_nor_waiting_nor_stolen() {
        let stat =
            "cpu  100 1 20 900 5 1 2 0 50 0\ncpu0 60 1 10 400 5 0 1 7 50 0\ncpu12 40 0 10 500 0 1 1 0 0 0\nintr 5 1\n";
        assert_eq!(busy_ticks(stat).collect::<Vec<_>>(), [(0, 72), (12, 52)]);
        assert_eq!(busy_ticks("cpu0 1 2\ncpuX 1 2 3 4 5 6 7\n\n").count(), 0);
    }
}
