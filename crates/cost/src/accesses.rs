//! Rounds in which accesses to memory are counted.
//!
//! Where a lab counts work alone, having its accesses counted makes it several times slower. Such rounds are rounds of their
//! own, whose rates are not kept.

use nearmetal_host::HostFs;
use nearmetal_load::Metric;

use super::Cost;

/// The most rounds: what stays on its node differs little from round to round.
const ROUNDS: u32 = 3;
/// What names of metrics begin with that say how far memory was, and what a model makes of that.
const KEPT: [&str; 2] = ["locality.", "modelled."];

/// How many rounds there are beside so many of pairs: none where nothing counts accesses, or all rounds count them anyway.
pub fn rounds_of_accesses(fs: &HostFs, pairs: u32) -> u32 {
    match fs.lab_counters() {
        Some(Ok(reading)) if !reading.watching => pairs.min(ROUNDS),
        _ => 0,
    }
}

/// What is kept of a run in such a round, and what its reader must know.
pub fn only_accesses(metrics: Vec<Metric>) -> (Vec<Metric>, String) {
    let is_kept = |metric: &Metric| {
        KEPT.iter().any(|kept| metric.name.starts_with(kept))
            || matches!(Cost::of(&metric.name), Some((Cost::Locality | Cost::Modelled, _)))
    };
    let note = "accesses to memory were counted in this run, which slows it: its rate is not kept";
    (metrics.into_iter().filter(is_kept).collect(), note.to_owned())
}

#[cfg(test)]
mod tests {
    use nearmetal_host::MemoryTree;
    use nearmetal_load::Unit;

    use super::*;

    #[test]
    fn a_run_whose_accesses_were_counted_keeps_nothing_else() {
        let named = |name: &str| Metric { name: name.to_owned(), unit: Unit::PerIo, value: 1.0 };
        let all = [
            "iops",
            "locality.local-share",
            "cost.locality.local",
            "cost.work.in-guest",
            "cpu.host",
            "modelled.ns",
            "cost.modelled.waiting",
        ]
        .map(named);
        let (kept, note) = only_accesses(all.to_vec());
        assert_eq!(
            kept,
            ["locality.local-share", "cost.locality.local", "modelled.ns", "cost.modelled.waiting"].map(named)
        );
        assert!(note.contains("its rate is not kept"), "{note}");
    }

    #[test]
    fn a_machine_that_counts_nothing_has_no_such_rounds() {
        assert_eq!(rounds_of_accesses(&HostFs::of_tree(MemoryTree::new(), "nothing"), 6), 0);
    }
}
