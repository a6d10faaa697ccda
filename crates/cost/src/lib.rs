//! Where the time goes: what the host did for each request of a load.
//!
//! Counters are read twice in the middle of a sample, when fio has started and ramped up and is not yet done, and their
//! difference is divided by the I/Os fio did in that time. The sample is no slower for it: KVM, the scheduler and the
//! interrupt controllers count anyway, and the reading is done off the slice. What cannot be read is said in the run's
//! notes, and is not 0.
//!
//! The figures are metrics of the run, named `cost.GROUP.NAME` ([`Cost`]), so that they are kept where all others are.

mod accesses;
mod error;
mod interrupts;
mod neighbours;
mod on_its_pus;
mod pu_time;
mod reasons;
mod silicon;
mod snapshot;
mod target;
mod watch;

pub use accesses::{only_accesses, rounds_of_accesses};
pub use error::CostError;
pub use on_its_pus::{MODELLED_TIME, comparable_figures};
pub use reasons::{Reasons, counting_reasons, stop_counting, why_no_reasons};
pub use snapshot::distances;
pub use target::{Requests, Target};
pub use watch::{Busy, Watched, watched};

use nearmetal_load::{Cost, Each, Metric, PREFIX};
use snapshot::Snapshot;

/// How far what was moved may be from what the rate promises, as a factor, and still be those requests. A program that has
/// just begun, or is done early, stays within it; another way for the data does not.
const CREDIBLE: f64 = 2.0;

fn is_credible(seen: f64, promised: f64) -> bool {
    (promised / CREDIBLE..=promised * CREDIBLE).contains(&seen)
}

/// What happened between two readings, for each of those that were done: the requests that were seen meanwhile, else at this
/// rate a second. Counters that are in one of the two alone (a thread that ended, an interrupt that came) are left out: their
/// difference is not known.
fn between(before: &Snapshot, after: &Snapshot, (rate, seen): (f64, Option<f64>), each: Each) -> Vec<Metric> {
    let counted = after.counted.saturating_sub(before.counted).as_secs_f64();
    let promised = rate * counted;
    let in_counted = seen.filter(|seen| is_credible(*seen, promised)).unwrap_or(promised);
    let in_taken = in_counted * (after.taken.saturating_sub(before.taken).as_secs_f64() / counted);
    if ![in_counted, in_taken].iter().all(|done| done.is_finite() && *done > 0.0) {
        return Vec::new();
    }
    let counted = after.counters.iter().filter_map(|(key, now)| {
        let (group, name) = key;
        let done = if group.is_counted_by_processors() { in_counted } else { in_taken };
        let value = now.checked_sub(*before.counters.get(key)?)? as f64 / done;
        // An interrupt line or KVM counter that stood still says nothing; that of all of them says that there was none.
        let may_stand_still = *group == Cost::Cpu || group.is_counted_by_processors();
        if value == 0.0 && !name.ends_with("all") && !may_stand_still {
            return None;
        }
        Some(Metric { name: format!("{PREFIX}{}.{name}", group.id()), unit: each.unit(*group), value })
    });
    counted.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nearmetal_units::Bytes;

    use super::*;

    fn snapshot(seconds: u64, counters: &[(Cost, &str, u64)]) -> Snapshot {
        Snapshot {
            taken: Duration::from_secs(seconds),
            counted: Duration::from_secs(seconds),
            moved: None,
            counters: counters.iter().map(|(cost, name, value)| ((*cost, (*name).to_owned()), *value)).collect(),
            online: None,
            unknown: Vec::new(),
            busy: None,
            of_guests: Default::default(),
        }
    }

    #[test]
    fn differences_are_divided_by_the_ios_of_that_time() {
        let before = snapshot(10, &[(Cost::Exits, "all", 1000), (Cost::Exits, "io", 50), (Cost::Cpu, "vcpu", 7)]);
        let after = snapshot(
            12,
            &[
                (Cost::Exits, "all", 5000),
                (Cost::Exits, "io", 50),
                (Cost::Cpu, "vcpu", 20_007),
                (Cost::Interrupts, "nvme1q1", 9),
            ],
        );
        let found = between(&before, &after, (500.0, None), Each::Io);
        let value = |name: &str| found.iter().find(|metric| metric.name == name).map(|metric| metric.value);
        assert_eq!(value("cost.exits.all"), Some(4.0));
        assert_eq!(value("cost.cpu.vcpu"), Some(20.0));
        assert_eq!(value("cost.exits.io"), None, "what stood still is left out");
        assert_eq!(value("cost.interrupts.nvme1q1"), None, "what was not there before has no difference");
        assert!(
            between(&before, &after, (0.0, None), Each::Io).is_empty()
                && between(&after, &after, (9.0, None), Each::Io).is_empty()
        );
    }

    #[test]
    fn requests_that_were_seen_count_rather_than_what_the_rate_promises() {
        let (before, after) = (snapshot(1, &[(Cost::Work, "x", 0)]), snapshot(2, &[(Cost::Work, "x", 900)]));
        let value = |seen| between(&before, &after, (100.0, seen), Each::Io)[0].value;
        assert_eq!((value(None), value(Some(90.0))), (9.0, 10.0));
        assert_eq!((value(Some(1.0)), value(Some(300.0))), (9.0, 9.0), "the data went another way");
        let at = |calls, blocks| Snapshot { moved: Some([calls, blocks]), ..Snapshot::default() };
        let seen = snapshot::requests_between(at(0, 4096).moved, at(40_960, 8192).moved, Bytes::from_kib(4));
        assert_eq!(seen, Some(10.0));
        assert_eq!(snapshot::requests_between(None, at(1, 1).moved, Bytes::from_kib(4)), None);
    }

    #[test]
    fn a_counter_that_ran_backwards_is_unknown_and_not_huge() {
        let (before, after) = (snapshot(1, &[(Cost::Exits, "all", 9)]), snapshot(2, &[(Cost::Exits, "all", 3)]));
        assert!(between(&before, &after, (10.0, None), Each::Io).is_empty());
    }

    #[test]
    fn a_unit_says_what_each_cost_is_for() {
        let counters = |more: u64| [(Cost::Exits, "all", more), (Cost::Cpu, "vcpu", more)];
        let found = between(&snapshot(1, &counters(0)), &snapshot(2, &counters(8)), (2.0, None), Each::Gigabit);
        let units: Vec<&str> = found.iter().map(|metric| metric.unit.symbol()).collect();
        assert_eq!(units, ["CPU ns/Gbit", "1/Gbit"], "{found:?}");
        assert_eq!(Each::Transaction.unit(Cost::Switches).symbol(), "1/trans");
    }

    #[test]
    fn names_lead_back_to_their_group() {
        assert_eq!(Cost::of("cost.interrupts.nvme1q1"), Some((Cost::Interrupts, "nvme1q1")));
        assert_eq!(Cost::of("cost.exits.io.x"), Some((Cost::Exits, "io.x")));
        for other in ["iops", "cpu", "cost.", "cost.x.y", "cost.cpu"] {
            assert_eq!(Cost::of(other), None, "{other}");
        }
    }
}
